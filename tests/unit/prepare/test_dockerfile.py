"""The images that the engine would fetch for a Dockerfile."""

from __future__ import annotations

import pytest
from forge_worker.runners.images.dockerfile import DockerfileRefused, check_triggers, images


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("FROM debian", ["debian"]),
        ("# a\n\nfrom\tdebian:12 AS one\nFROM one\nRUN x", ["debian:12"]),
        ("FROM scratch\nCOPY --from=busybox:1 /x /y", ["busybox:1"]),
        ("FROM a AS b\nFROM c\nCOPY --chown=1 --from=b /x /y\nCOPY --from=0 x y", ["a", "c"]),
        ("FROM a AS B\nFROM B\nCOPY --from=b x y", ["a"]),
        ("ARG V=3.11\nARG N='py'\nFROM $N:${V}-slim", ["py:3.11-slim"]),
        ("ARG V=1\nARG V=2\nFROM a:$V", ["a:2"]),
        ("FROM --platform=linux/amd64 a@sha256:" + "0" * 64, ["a@sha256:" + "0" * 64]),
        ("FROM \\\n# between\n\n  debian", ["debian"]),
        ("FROM a\nRUN echo \\\nFROM b", ["a"]),
        ("\ufeffFROM a\r\nRUN x \\\r\n  y\r\nFROM b\r\n", ["a", "b"]),
        # The white space after the backslash is such to some readers only.
        ("FROM a\nRUN x \\\u00a0\nFROM b", ["a", "b"]),
        ("FROM a\nONBUILD COPY --from=b x y", ["a", "b"]),
        # The engine ignores this one; BuildKit, which would not, is never asked for.
        ("# syntax=docker/dockerfile:1\nFROM a", ["a"]),
        ("ARG A=a B='b c'\nARG V=1 C\nFROM $A:$V", ["a:1"]),
        # The space before what is continued stays.
        ("FROM\\\n a\nCOPY\\\n --from=b x y", ["a", "b"]),
        # Its own stage is none that has ended: the engine takes that for an image's name.
        ("FROM a AS b\nCOPY --from=b x y\nFROM b", ["a", "b"]),
        ('FROM a\nADD data.tar.gz /x\nADD ["a b", "/x"]', ["a"]),
    ],
)
def test_images_that_are_fetched(text: str, found: list[str]) -> None:
    assert images(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "FROM $WHAT",
        "ARG WHAT\nFROM $WHAT",
        "ARG WHAT=$OTHER\nFROM $WHAT",
        "FROM a\nARG B=b\nFROM $B",
        "ARG V=1\nFROM a:${V:-2}",
        'FROM "a"',
        "FROM",
        "# escape=`\nFROM a",
        "\ufeff# escape=`\nFROM a",
        "#\tEscape =\\\nFROM a",
        "FROM a\x0bAS b",
        "FROM a\nFROM\rb",
        "FROM a\nRUN true \\\r \nCOPY --from=b x y",
        "FROM a\nRUN true \\\\\nCOPY --from=b x y",
        'FROM a\nCOPY --fr""om=b x y',
        "FROM a\nCOPY --fr''om=b x y",
        "FROM a\nCOPY --fr\\om=b x y",
        "FROM a\nONBUILD COPY --chown=1 --fr\\om=b x y",
        'FROM a\nHEALTHCHECK --interval="1s" CMD x',
        "FROM a\nCOPY --chown=\u00e0--from=b x y",
        "FROM a\nCOPY --from= x y",
        "FROM a\nONBU\u0130LD COPY --from=b x y",
        'FROM a\nCOPY ["\\u002fx", "/y"]',
        'FROM a\nADD ["http:\\u002f\\u002fx/y", "/z"]',
        "FROM a\nADD http\\u003a//x /",
        'ARG A=ok:latest\nARG A=r4ev"il":1\nFROM $A',
        'ARG A=ok:latest\nARG A=evil:1 "B"=1\nFROM $A',
        "ARG A=ok:latest\nARG \\A=evil:1\nFROM $A",
        "ARG A=ok:latest\nARG A\nFROM $A",
        "FROM a\nADD http://169.254.169.254/x /",
        "FROM a\nENV U=http://x\nADD ${U} /",
        "FROM a\nADD \"htt\"p:'//'x /",
        "FROM a\nADD http:\\//x /",
        "FROM a\nONBUILD ADD https://x/y /",
        "FROM a\nadd --chown=1 git@x:y.git /",
    ],
)
def test_what_cannot_be_told_is_refused(text: str) -> None:
    with pytest.raises(DockerfileRefused) as refused:
        images(text)
    assert refused.value.hint


def test_what_an_image_does_to_its_children_is_looked_at_too() -> None:
    check_triggers(["RUN make", "COPY . /app"], "a")
    for triggers in (["ADD http://x /"], ["COPY --from=b x y"], ["RUN x \\", "COPY --from=b x y"]):
        with pytest.raises(DockerfileRefused):
            check_triggers(triggers, "a")
