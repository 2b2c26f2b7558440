"""A Dockerfile's instructions as the engine reads them; what could be read two ways is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forge_worker.runners.runner import ImageMissing

if TYPE_CHECKING:
    from collections.abc import Iterator

ESCAPE = re.compile(r"^\s*#\s*escape\s*=", re.IGNORECASE | re.MULTILINE)
# The engine takes some of them for white space, some not.
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x85]|\r(?!\n)")
WORD = re.compile(r"(?P<word>[A-Za-z]+)(?: +(?P<rest>.*))?")
FLAG = re.compile(r"--[^ ]* *")
# The engine takes quotes and backslashes out of flags, and some bytes of others for white space.
PLAIN_FLAG = re.compile(r"""--[!#-&(-\[\]-~]* *""")


class DockerfileRefused(ImageMissing):
    """The Dockerfile cannot be built here."""

    code = "dockerfile_refused"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its word in capitals, its flags as they stand, and the rest."""

    word: str
    flags: tuple[str, ...]
    rest: str


def refused(what: str, hint: str) -> DockerfileRefused:
    """Return the error of a Dockerfile that cannot be built here."""
    return DockerfileRefused(f"the Dockerfile cannot be built here: {what}", hint=hint)


def instructions(text: str) -> Iterator[Instruction]:
    """Yield the instructions in order.

    Raises:
        DockerfileRefused: the engine could read it otherwise than it is read here.
    """
    text = text.removeprefix("\ufeff")
    if ESCAPE.search(text):
        raise refused("it sets another escape character", "leave the backslash as it is")
    if odd := CONTROL.search(text):
        raise refused(f"it holds the character {odd[0]!r}", "take it out")
    for line in _joined(text.replace("\r\n", "\n").replace("\t", " ")):
        yield instruction(line)


def instruction(line: str) -> Instruction:
    """Take one whole instruction apart.

    Raises:
        DockerfileRefused: it is none, or its flags are not plain.
    """
    found = WORD.fullmatch(line.strip())
    if found is None:
        raise refused(f"{line.strip()[:80]!r} is no instruction", "begin it with its word")
    rest = found["rest"] or ""
    flags = []
    while flag := FLAG.match(rest):
        if not PLAIN_FLAG.fullmatch(flag[0]):
            raise refused(
                f"the flag {flag[0].strip()} is not plain",
                "write it without quotes, backslashes and characters beyond ASCII",
            )
        flags.append(flag[0].strip())
        rest = rest[flag.end() :]
    return Instruction(found["word"].upper(), tuple(flags), rest)


def _joined(text: str) -> Iterator[str]:
    """Yield whole lines: no comments, continued lines joined as they stand."""
    begun: list[str] = []
    for line in text.split("\n"):
        said = line.lstrip()
        if said.startswith("#") or not said:
            continue
        body = line.rstrip(" ")
        if body.endswith("\\\\"):
            raise refused("a line ends with two backslashes", "end it with one, or with none")
        begun.append(body.removesuffix("\\"))
        if not body.endswith("\\"):
            yield "".join(begun)
            begun = []
    if "".join(begun).strip():
        yield "".join(begun)
