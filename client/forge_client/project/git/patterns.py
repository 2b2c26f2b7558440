"""The patterns of .gitignore files, as git compares them: byte by byte, with one entry at a time.

A library that compares whole paths, below a folder too, gives other answers than git wherever a
later pattern includes something again.
"""

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

SLASH, STAR, BACKSLASH = b"/", b"*", b"\\"
CLASSES = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "blank": " \t",
    "cntrl": "".join(map(chr, (*range(32), 127))),
    "digit": string.digits,
    "graph": "".join(map(chr, range(33, 127))),
    "lower": string.ascii_lowercase,
    "print": "".join(map(chr, range(32, 127))),
    "punct": string.punctuation,
    "space": " \t\n\v\f\r",
    "upper": string.ascii_uppercase,
    "xdigit": string.hexdigits,
}
NEVER = b"(?!)"


@dataclass(frozen=True)
class Pattern:
    """A line of an ignore file; `includes` if it takes back what an earlier one ignored."""

    line: int
    text: bytes
    includes: bool
    only_folders: bool

    def matches(self, path: bytes, *, folder: bool) -> bool:
        """Tell whether it names the entry at this path below the ignore file's folder."""
        if self.only_folders and not folder:
            return False
        return (
            self._regex.fullmatch(path if self._anchored else path.rpartition(SLASH)[2]) is not None
        )

    @property
    def ends_in_escape(self) -> bool:
        """Whether its last backslash stands before nothing: such a pattern never matches."""
        return bool((len(self.text) - len(self.text.rstrip(BACKSLASH))) % 2)

    @property
    def _anchored(self) -> bool:
        return SLASH in self.text

    @cached_property
    def _regex(self) -> re.Pattern[bytes]:
        return _regex(self.text.removeprefix(SLASH), self._anchored)


def patterns(content: bytes) -> tuple[Pattern, ...]:
    """Return the patterns of an ignore file, in its order."""
    lines = map(_trimmed, content.removeprefix(b"\xef\xbb\xbf").split(b"\n"))
    return tuple(
        _pattern(number, line)
        for number, line in enumerate(lines, start=1)
        if line and not line.startswith(b"#")
    )


def _trimmed(line: bytes) -> bytes:
    """Return a line without the spaces at its end that no backslash protects."""
    line = line.removesuffix(b"\r").partition(b"\0")[0]
    end = len(line.rstrip(b" "))
    escapes = len(line[:end]) - len(line[:end].rstrip(BACKSLASH))
    return line[: end + 1] if escapes % 2 else line[:end]


def _pattern(number: int, line: bytes) -> Pattern:
    text = line.removeprefix(b"!")
    return Pattern(number, text.removesuffix(SLASH), line.startswith(b"!"), text.endswith(SLASH))


@lru_cache(maxsize=4096)
def _regex(text: bytes, anchored: bool) -> re.Pattern[bytes]:  # noqa: FBT001 - a key of the cache
    parts = b"".join(_parts(text, anchored))
    return re.compile(parts, re.DOTALL)


def _parts(text: bytes, anchored: bool) -> Iterator[bytes]:  # noqa: FBT001 - as above
    at = 0
    while at < len(text):
        char = text[at : at + 1]
        if char == STAR:
            part, at = _stars(text, at, anchored)
            yield part
        elif char == b"[":
            part, at = _bracket(text, at + 1)
            yield part
        elif char == BACKSLASH:
            yield re.escape(text[at + 1 : at + 2]) if at + 1 < len(text) else NEVER
            at += 2
        else:
            yield b"[^/]" if char == b"?" else re.escape(char)
            at += 1


def _stars(text: bytes, start: int, anchored: bool) -> tuple[bytes, int]:  # noqa: FBT001 - as above
    """Return the expression for a run of stars, and where it ends."""
    end = start + len(text[start:]) - len(text[start:].lstrip(STAR))
    begins = start == 0 or text[start - 1 : start] == SLASH
    rest = text[end:]
    if not anchored:
        return b".*", end
    if end - start == 1 or not begins or not (not rest or rest.startswith((SLASH, b"\\/"))):
        return b"[^/]*", end
    # Zero or more folders.
    return (b"(?:.*/)?", end + 1) if rest.startswith(SLASH) else (b".*", end)


def _bracket(text: bytes, at: int) -> tuple[bytes, int]:
    """Return the expression for a set of bytes, and where it ends."""
    if negated := text[at : at + 1] in {b"!", b"^"}:
        at += 1
    members: set[int] = set()
    before, first = 0, True
    while first or text[at : at + 1] != b"]":
        first = False
        if at >= len(text):
            return NEVER, len(text)
        some, before, at = _member(text, at, before)
        if some is None:
            return NEVER, len(text)
        members |= some
    wanted = (set(range(256)) - members if negated else members) - {SLASH[0]}
    named = b"".join(b"\\x%02x" % byte for byte in sorted(wanted))
    return (b"[" + named + b"]" if named else NEVER), at + 1


def _member(text: bytes, at: int, before: int) -> tuple[set[int] | None, int, int]:
    """Return the bytes that a member of a set stands for, what a range may begin with, and the end.

    The first is None if the set is malformed.
    """
    char = text[at]
    if char == BACKSLASH[0]:
        return ({text[at + 1]}, text[at + 1], at + 2) if at + 1 < len(text) else (None, 0, at)
    if char == ord("-") and before and text[at + 1 : at + 2] not in {b"", b"]"}:
        at += 2 if text[at + 1] == BACKSLASH[0] else 1
        return (set(range(before, text[at] + 1)), 0, at + 1) if at < len(text) else (None, 0, at)
    if text[at : at + 2] == b"[:":
        end = text.find(b"]", at + 2)
        if end < 0:
            return None, 0, at
        if end > at + 2 and text[end - 1] == ord(":"):
            named = CLASSES.get(text[at + 2 : end - 1].decode("latin-1"))
            return (set(named.encode()) if named is not None else None), 0, end + 1
    return {char}, char, at + 1
