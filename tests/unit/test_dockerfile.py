"""What a Dockerfile would have the engine fetch."""

from __future__ import annotations

import pytest
from forge_worker.runners.dockerfile import DockerfileRefused, check_triggers, images


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("FROM debian", ["debian"]),
        ("# a\n\nfrom\tdebian:12 AS one\nFROM one\nRUN x", ["debian:12"]),
        ("FROM scratch\nCOPY --from=busybox:1 /x /y", ["busybox:1"]),
        ("FROM a AS b\nFROM c\nCOPY --chown=1 --from=b /x /y\nCOPY --from=0 x y", ["a", "c"]),
        ("FROM a AS B\nCOPY --from=b x y", ["a"]),
        ("ARG V=3.11\nARG N='py'\nFROM $N:${V}-slim", ["py:3.11-slim"]),
        ("ARG V=1\nARG V=2\nFROM a:$V", ["a:2"]),
        ("FROM --platform=linux/amd64 a@sha256:" + "0" * 64, ["a@sha256:" + "0" * 64]),
        ("FROM \\\n# between\n\n  debian", ["debian"]),
        ("FROM a\nRUN echo \\\nFROM b", ["a"]),
        ("\ufeffFROM a\r\nRUN x \\\r\n  y\r\nFROM\rb\r\n", ["a", "b"]),
        # The white space after the backslash is such to some readers only.
        ("FROM a\nRUN x \\\u00a0\nFROM b", ["a", "b"]),
        ("FROM a\nONBUILD COPY --from=b x y", ["a", "b"]),
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
        "FROM a\x0bAS b",
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
    for trigger in ("ADD http://x /", "COPY --from=b x y"):
        with pytest.raises(DockerfileRefused):
            check_triggers([trigger], "a")
