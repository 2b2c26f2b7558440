"""A command that only a shell could run is refused, and nothing else is."""

from __future__ import annotations

import shlex

import pytest
from forge_schema.model.reading import NeedsShell, without_signs, words_of


@pytest.mark.parametrize(
    "line",
    [
        "a && b", "a||b", "a | tee x", "a > x", "a 2>&1", "a 2> x", "a < x", "a; b", "a &",
        "'a b' && c", "cd src", "source a.sh",
    ],
)  # fmt: skip
def test_a_line_for_a_shell_is_refused_with_what_to_write(line: str) -> None:
    with pytest.raises(ValueError, match="for one, write: bash -c ") as refused:
        words_of(line)
    written = shlex.split(str(refused.value).partition("write: ")[2])
    assert written == ["bash", "-c", line]
    assert words_of(shlex.join(written)) == written


@pytest.mark.parametrize(
    "line",
    [
        "python a.py 'b && c' \"d | e\"", r"find . -exec rm {} \;", "train --range=a>b",
        "grep 'x;y' log", "curl http://h/?a=1&b=2", "python -c 'print(1); print(2)'",
    ],
)  # fmt: skip
def test_what_is_quoted_or_within_a_word_stays(line: str) -> None:
    assert words_of(line) == shlex.split(line)


def test_a_word_that_is_a_sign_is_refused() -> None:
    with pytest.raises(ValueError, match=r"bash -c 'python a.py \| tee x'"):
        without_signs(["python", "a.py", "|", "tee", "x"])
    with pytest.raises(NeedsShell) as odd:
        without_signs(["A=x; y", "python"])
    assert (odd.value.fault, odd.value.instead[:14]) == (
        "no shell would read 'A=x; y'",
        "write --env A=",
    )
    for meant in (["find", ".", "-exec", "rm", "{}", ";"], ["cut", "-d", "|", "-f", "2"]):
        assert without_signs(meant) == meant
    for line in ("FOO=1 python a.py", "FOO='a b' python a.py"):
        with pytest.raises(ValueError, match=r"write --env FOO=.* -- python a.py, or bash -c"):
            words_of(line)
    # Forge chooses the GPUs, and `--env` would have none.
    with pytest.raises(ValueError, match=r"write --gpu 2 --env A=1 -- torchrun a.py, or bash -c"):
        words_of("CUDA_VISIBLE_DEVICES=0,3 A=1 torchrun a.py")
    assert words_of("env FOO=1 python a.py")[:2] == ["env", "FOO=1"]
