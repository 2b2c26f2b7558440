"""What the engine itself would fetch for a Dockerfile, outside of the build's containers.

Of that no wall of ours would see anything: images are fetched by us, by the operator's rules, and
an ADD from elsewhere, which could read the machine's metadata service, is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from forge_worker.runners.images.instructions import Instruction, instruction, instructions, refused

if TYPE_CHECKING:
    from collections.abc import Iterable

VARIABLE = re.compile(r"\$(?:(?P<bare>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})")
PLAIN = re.compile(r"[A-Za-z0-9_./:@-]*")
ARGUMENT = re.compile(
    r"""(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    (?P<set>=(?:"(?P<double>[^"'\\]*)"|'(?P<single>[^"'\\]*)'|(?P<plain>[!#-&(-\[\]-~]*)))?
    (?:[ ]+|$)""",
    re.VERBOSE,
)


def images(text: str) -> list[str]:
    """Return the images that a Dockerfile builds upon or copies from, in order, each once.

    Raises:
        DockerfileRefused: that cannot be told, or it lets the engine fetch something else.
    """
    reading = _Reading()
    for one in instructions(text):
        reading.take(one)
    return list(dict.fromkeys(reading.images))


class _Reading:
    """Goes through the instructions in order."""

    def __init__(self) -> None:
        self.images: list[str] = []
        self._arguments: dict[str, str] = {}
        self._stages: set[str] = set()
        self._stage = ""
        self._begun = False

    def take(self, one: Instruction) -> None:
        match one.word:
            case "ONBUILD":
                self.take(instruction(one.rest))
            case "ARG" if not self._begun:
                self._define(one.rest)
            case "FROM":
                self._begin(one.rest.split())
            case "COPY":
                _check_copy(one.rest)
                self._copy(one.flags)
            case "ADD":
                _check_add(one.rest)

    def _define(self, rest: str) -> None:
        while rest:
            found = ARGUMENT.match(rest)
            if found is None:
                # Whatever names it has, the engine may read other values for them.
                self._arguments.clear()
                return
            self._arguments.pop(found["name"], None)
            if found["set"]:
                value = found["double"] or found["single"] or found["plain"] or ""
                self._arguments[found["name"]] = value
            rest = rest[found.end() :]

    def _begin(self, words: list[str]) -> None:
        # A stage is known by its name only once it has ended; before, the engine would fetch it.
        self._stages.add(self._stage)
        if not words:
            raise refused("a FROM names no image", "name one")
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
        def value(found: re.Match[str]) -> str:
            return self._arguments.get(found["bare"] or found["braced"], "$")

        filled = VARIABLE.sub(value, name)
        if not filled or not PLAIN.fullmatch(filled):
            raise refused(
                f"what image {name} is cannot be told",
                "write its name, or an ARG with a plain default before the first FROM",
            )
        return filled


def check_triggers(triggers: Iterable[str], image: str) -> None:
    """Refuse an image that lets its children's build fetch something.

    Raises:
        DockerfileRefused: it does.
    """
    # Each by itself, as the engine reads them: none goes on in the next.
    if any(images(trigger) for trigger in triggers):
        raise refused(f"the ONBUILD lines of {image} copy from other images", "copy them yourself")


def _check_copy(rest: str) -> None:
    if rest.startswith("[") and "\\" in rest:
        raise refused(f"COPY {rest} holds a backslash", "name the files without one")


def _check_add(rest: str) -> None:
    bare = re.sub(r"[\"']", "", rest)
    if "\\" in bare or "://" in bare or "$" in bare or "git@" in bare:
        raise refused(
            f"ADD {rest} could fetch something past the build's network",
            "fetch it by RUN, or use COPY for what is in the project; no backslash, no variable",
        )
