"""What the engine itself would fetch for a Dockerfile, outside of the build's containers.

Of that no wall of ours would see anything: images are fetched by us, by the operator's rules, and
an ADD from elsewhere, which could read the machine's metadata service, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from forge_worker.runners.runner import ImageMissing

ESCAPE = re.compile(r"^\s*#\s*escape\s*=", re.IGNORECASE | re.MULTILINE)
# The engine takes some of them for white space, some not.
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x85]")
VARIABLE = re.compile(r"\$(?:(?P<bare>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})")
PLAIN = re.compile(r"[A-Za-z0-9_./:@-]*")
ARGUMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<quote>[\"']?)(?P<value>[^\"'\s]*)(?P=quote)\s*")


class DockerfileRefused(ImageMissing):
    """The Dockerfile cannot be built here."""

    code = "dockerfile_refused"


def images(text: str) -> list[str]:
    """Return the images that a Dockerfile builds upon or copies from, in order, each once.

    Raises:
        DockerfileRefused: that cannot be told, or it lets the engine fetch something else.
    """
    if ESCAPE.search(text):
        raise _refused("it sets another escape character", "leave the backslash as it is")
    reading = _Reading()
    for line in _instructions(text):
        reading.take(line)
    return list(dict.fromkeys(reading.images))


class _Reading:
    """Goes through the instructions in order."""

    def __init__(self) -> None:
        self.images: list[str] = []
        self._arguments: dict[str, str] = {}
        self._stages: set[str] = set()
        self._begun = False

    def take(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        match word.upper():
            case "ONBUILD":
                self.take(rest.strip())
            case "ARG" if not self._begun:
                self._define(rest)
            case "FROM":
                self._begin(rest.split())
            case "COPY":
                self._copy(rest.split())
            case "ADD":
                _check_add(rest)

    def _define(self, rest: str) -> None:
        if found := ARGUMENT.fullmatch(rest):
            self._arguments[found["name"]] = found["value"]

    def _begin(self, words: list[str]) -> None:
        named = [word for word in words if not word.startswith("--")]
        if not named:
            raise _refused("a FROM names no image", "name one")
        self._use(self._filled(named[0]))
        if len(named) == 3 and named[1].upper() == "AS":  # noqa: PLR2004  image, AS, name
            self._stages.add(named[2].lower())
        self._begun = True

    def _copy(self, words: list[str]) -> None:
        for word in words:
            if not word.startswith("--"):
                return
            if word.startswith("--from=") and not word[7:].isdigit():
                self._use(self._filled(word[7:]))

    def _use(self, name: str) -> None:
        if name.lower() not in self._stages and name != "scratch":
            self.images.append(name)

    def _filled(self, name: str) -> str:
        def value(found: re.Match[str]) -> str:
            return self._arguments.get(found["bare"] or found["braced"], "$")

        filled = VARIABLE.sub(value, name)
        if not PLAIN.fullmatch(filled):
            raise _refused(
                f"what image {name} is cannot be told",
                "write its name, or an ARG with a plain default before the first FROM",
            )
        return filled


def check_triggers(triggers: Iterable[str], image: str) -> None:
    """Refuse an image that lets its children's build fetch something.

    Raises:
        DockerfileRefused: it does.
    """
    if images("\n".join(triggers)):
        raise _refused(f"the ONBUILD lines of {image} copy from other images", "copy them yourself")


def _check_add(rest: str) -> None:
    bare = re.sub(r"[\"'\\]", "", rest)
    if "://" in bare or "$" in bare or "git@" in bare:
        raise _refused(
            f"ADD {rest} could fetch something past the build's network",
            "fetch it by RUN, or use COPY for what is in the project",
        )


def _instructions(text: str) -> Iterator[str]:
    """Yield whole instructions as the engine reads them: no comments, continued lines joined."""
    if odd := CONTROL.search(text):
        raise _refused(f"it holds the character {odd[0]!r}", "take it out")
    begun = ""
    for line in text.removeprefix("\ufeff").split("\n"):
        said = line.lstrip().rstrip(" \t\r")
        if said.startswith("#") or not said:
            continue
        begun += re.sub("[\t\r]", " ", said).removesuffix("\\")
        if not said.endswith("\\"):
            yield begun.strip()
            begun = ""
    if begun.strip():
        yield begun.strip()


def _refused(what: str, hint: str) -> DockerfileRefused:
    return DockerfileRefused(f"the Dockerfile cannot be built here: {what}", hint=hint)
