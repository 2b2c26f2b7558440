"""Names of packages as an index knows them, and the markers that decide which of a lock's hold."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
EXTRAS = re.compile(r"\s*[\w.-]+\s*\[([^\]]*)\]")
AN_EXTRA = re.compile(r";.*\bextra\s*==\s*[\"']([\w.-]+)")
WORD = re.compile(r"\s*(?:(\(|\))|(\"[^\"]*\"|'[^']*')|([^\s()\"'=<>!~]+)|([=<>!~]+))")
NAMED = {"extra", "extras", "dependency_groups"}
Decided = str | bool


def canonical(name: str) -> str:
    """Return a package's name as an index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement: str) -> str:
    """Return the canonical name in a requirement such as `NumPy>=2`; "" without one."""
    match = NAME.match(requirement.strip())
    return canonical(match[0]) if match else ""


def extras_of(requirement: str) -> list[str]:
    """Return the extras in a requirement such as `psycopg[binary,pool]>=3`."""
    match = EXTRAS.match(requirement)
    return [extra.strip() for extra in match[1].split(",")] if match else []


@dataclass(frozen=True)
class Picked:
    """The extras and groups of a project that a job wants; `whole` is everything, for tests."""

    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    whole: bool = False

    def __bool__(self) -> bool:
        """Tell whether somebody named any."""
        return bool(self.extras or self.groups)


NOTHING = Picked()


def decided(marker: str, extras: Sequence[str], groups: Sequence[str]) -> str | None:
    """Return what is left of a marker: "" if it always holds, None if it never does.

    Raises:
        ValueError: it is malformed.
    """
    if not marker.strip():
        return ""
    words = list(_words(marker))
    asked = {canonical(name) for name in extras}, {canonical(name) for name in groups}
    left, rest = _either(words, asked)
    if rest:
        raise ValueError(marker)
    if isinstance(left, bool):
        return "" if left else None
    return left


def joined(markers: Sequence[str]) -> str:
    """Return the marker that holds if any of some does; "" if one of them always does."""
    parts = list(dict.fromkeys(markers))
    return (
        "" if "" in parts else parts[0] if len(parts) == 1 else " or ".join(map(_bracketed, parts))
    )


def _words(marker: str) -> Iterator[str]:
    at = 0
    while marker[at:].strip():
        match = WORD.match(marker, at)
        if match is None:
            raise ValueError(marker)
        yield match[0].strip()
        at = match.end()


Asked = tuple[set[str], set[str]]


def _either(words: list[str], asked: Asked) -> tuple[Decided, list[str]]:
    parts, rest = [], ["or", *words]
    while rest and rest[0] == "or":
        part, rest = _every(rest[1:], asked)
        parts.append(part)
    if True in parts:
        return True, rest
    texts = [part for part in parts if isinstance(part, str)]
    return (" or ".join(texts) if texts else False), rest


def _every(words: list[str], asked: Asked) -> tuple[Decided, list[str]]:
    parts, rest = [], ["and", *words]
    while rest and rest[0] == "and":
        part, rest = _term(rest[1:], asked)
        parts.append(part)
    if False in parts:
        return False, rest
    texts = [_bracketed(part) for part in parts if isinstance(part, str)]
    if len(texts) == 1:
        return next(part for part in parts if isinstance(part, str)), rest
    return (" and ".join(texts) if texts else True), rest


def _term(words: list[str], asked: Asked) -> tuple[Decided, list[str]]:
    if words[:1] == ["("]:
        result, rest = _either(words[1:], asked)
        if rest[:1] != [")"]:
            raise ValueError(" ".join(words))
        return result, rest[1:]
    length = 4 if words[1:3] == ["not", "in"] else 3
    test, rest = words[:length], words[length:]
    if len(test) < length or {"(", ")", "and", "or"} & set(test):
        raise ValueError(" ".join(words))
    if not NAMED & set(test):
        return " ".join(test), rest
    return _holds(test, asked), rest


def _holds(test: list[str], asked: Asked) -> bool:
    """Decide about one extra or group, on whichever side of the sign its name is."""
    (what,) = NAMED & set(test)
    name = canonical((test[0] if test[-1] == what else test[-1]).strip("\"'"))
    there = name in asked[what == "dependency_groups"]
    return there != (test[1] in {"!=", "not"})


def _bracketed(text: str) -> str:
    return f"({text})" if " or " in text else text
