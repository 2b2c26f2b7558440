"""Find what the engine itself would fetch for a Dockerfile, outside the build's containers.

Network rules do not cover these fetches. So Forge pulls the images itself, by the operator's rules,
and refuses a remote ADD, which could read the machine's metadata service.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forge_worker.runners.runner import ImageMissing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ESCAPE = re.compile(r"^\s*#\s*escape\s*=", re.IGNORECASE | re.MULTILINE)
# The engine treats some of these as white space.
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x85]|\r(?!\n)")
WORD = re.compile(r"(?P<word>[A-Za-z]+)(?: +(?P<rest>.*))?")
FLAG = re.compile(r"--[^ ]* *")
# The engine removes quotes and backslashes from flags, and treats some bytes as white space.
PLAIN_FLAG = re.compile(r"""--[!#-&(-\[\]-~]* *""")
VARIABLE = re.compile(r"\$(?:(?P<bare>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})")
PLAIN = re.compile(r"[A-Za-z0-9_./:@-]*")
ARGUMENT = re.compile(
    r"""(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    (?P<set>=(?:"(?P<double>[^"'\\]*)"|'(?P<single>[^"'\\]*)'|(?P<plain>[!#-&(-\[\]-~]*)))?
    (?:[ ]+|$)""",
    re.VERBOSE,
)


class DockerfileRefused(ImageMissing):
    """The Dockerfile cannot be built here."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its keyword in capitals, its flags verbatim, and the rest."""

    word: str
    flags: tuple[str, ...]
    rest: str


def refused(what: str, hint: str) -> DockerfileRefused:
    """Return the error of a Dockerfile that cannot be built here."""
    return DockerfileRefused(f"the Dockerfile cannot be built here: {what}", hint=hint)


def instructions(text: str) -> Iterator[Instruction]:
    """Yield the instructions in order.

    Raises:
        DockerfileRefused: the engine might parse it differently.
    """
    text = text.removeprefix("\ufeff")
    if ESCAPE.search(text):
        raise refused("it changes the escape character", "remove the escape directive")
    if odd := CONTROL.search(text):
        raise refused(f"it contains the character {odd[0]!r}", "remove it")
    for line in _joined(text.replace("\r\n", "\n").replace("\t", " ")):
        yield instruction(line)


def instruction(line: str) -> Instruction:
    """Parse one complete instruction.

    Raises:
        DockerfileRefused: it is not an instruction, or its flags are not plain.
    """
    match = WORD.fullmatch(line.strip())
    if match is None:
        raise refused(f"{line.strip()[:80]!r} is not an instruction", "start it with a keyword")
    rest = match["rest"] or ""
    flags = []
    while flag := FLAG.match(rest):
        if not PLAIN_FLAG.fullmatch(flag[0]):
            raise refused(
                f"the flag {flag[0].strip()} is not plain",
                "write it without quotes, backslashes and characters beyond ASCII",
            )
        flags.append(flag[0].strip())
        rest = rest[flag.end() :]
    return Instruction(match["word"].upper(), tuple(flags), rest)


def _joined(text: str) -> Iterator[str]:
    """Yield logical lines: without comments, with continuation lines joined verbatim."""
    begun: list[str] = []
    for line in text.split("\n"):
        stripped = line.lstrip()
        if stripped.startswith("#") or not stripped:
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


def images(text: str) -> list[str]:
    """Return the images that a Dockerfile builds on or copies from, in order, each once.

    Raises:
        DockerfileRefused: they are ambiguous, or the engine would fetch something else too.
    """
    reading = _Reading()
    for an_instruction in instructions(text):
        reading.take(an_instruction)
    return list(dict.fromkeys(reading.images))


class _Reading:
    """Processes the instructions in order."""

    def __init__(self) -> None:
        self.images: list[str] = []
        self._arguments: dict[str, str] = {}
        self._stages: set[str] = set()
        self._stage = ""
        self._begun = False

    def take(self, step: Instruction) -> None:
        match step.word:
            case "ONBUILD":
                self.take(instruction(step.rest))
            case "ARG" if not self._begun:
                self._define(step.rest)
            case "FROM":
                self._begin(step.rest.split())
            case "COPY":
                _check_copy(step.rest)
                self._copy(step.flags)
            case "ADD":
                _check_add(step.rest)

    def _define(self, rest: str) -> None:
        while rest:
            match = ARGUMENT.match(rest)
            if match is None:
                # The engine may parse the instruction's values differently.
                self._arguments.clear()
                return
            self._arguments.pop(match["name"], None)
            if match["set"]:
                value = match["double"] or match["single"] or match["plain"] or ""
                self._arguments[match["name"]] = value
            rest = rest[match.end() :]

    def _begin(self, words: list[str]) -> None:
        # A stage's name is valid only after its end; before, the engine would pull an image of that
        # name.
        self._stages.add(self._stage)
        if not words:
            raise refused("a FROM has no image", "add one")
        self._use(self._filled(words[0]))
        named = len(words) == 3 and words[1].upper() == "AS"  # noqa: PLR2004  image, AS, name
        self._stage = words[2].lower() if named else ""
        self._begun = True

    def _copy(self, flags: Iterable[str]) -> None:
        for flag in flags:
            if flag.startswith("--from=") and not flag[7:].isdigit():
                self._use(self._filled(flag[7:]))

    def _use(self, name: str) -> None:
        if name.lower() not in self._stages and name != "scratch":
            self.images.append(name)

    def _filled(self, name: str) -> str:
        def value(match: re.Match[str]) -> str:
            return self._arguments.get(match["bare"] or match["braced"], "$")

        filled = VARIABLE.sub(value, name)
        if not filled or not PLAIN.fullmatch(filled):
            raise refused(
                f"the image {name} cannot be determined",
                "write its name, or an ARG with a plain default before the first FROM",
            )
        return filled


def check_triggers(triggers: Iterable[str], image: str) -> None:
    """Refuse an image whose ONBUILD triggers fetch something.

    Raises:
        DockerfileRefused: a trigger fetches something.
    """
    # Each is parsed alone, as in the engine: a trigger does not continue in the next one.
    if any(images(trigger) for trigger in triggers):
        raise refused(f"the ONBUILD lines of {image} copy from other images", "copy them yourself")


def _check_copy(rest: str) -> None:
    if rest.startswith("[") and "\\" in rest:
        raise refused(f"COPY {rest} contains a backslash", "name the files without one")


def _check_add(rest: str) -> None:
    bare = re.sub(r"[\"']", "", rest)
    if "\\" in bare or "://" in bare or "$" in bare or "git@" in bare:
        raise refused(
            f"ADD {rest} could fetch something outside the build's network",
            "fetch it with RUN, or use COPY for the project's files, without backslash and"
            " variables",
        )
