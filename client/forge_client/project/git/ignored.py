"""The ignore files that hold in a folder, as git finds and compares them: where it cannot be asked.

A library that compares whole paths, below a folder too, gives other answers than git wherever a
later pattern includes something again. So patterns are compared byte by byte, one entry at a time.
"""

import os
import re
import string
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from forge_client.project.git.program import GitFailed, git

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
GITIGNORE, FORGEIGNORE = ".gitignore", ".forgeignore"
# A chain of these is as deep as folders may be; a repository's top is not further up.
MOST_FOLDERS = 256


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


@dataclass(frozen=True)
class Ignore:
    """The patterns of one file, which hold below `base`; those of `above` where it is silent."""

    base: bytes = b""
    patterns: tuple[Pattern, ...] = ()
    above: "Ignore | None" = None

    def with_file(self, path: Path, base: bytes, *, links: bool = False) -> "Ignore":
        """Return the rules with those of an ignore file before them.

        Args:
            path: the file, which need not exist.
            base: the path of the folder that it holds in, with a slash at its end, or nothing.
            links: whether it may be a link; git reads none in a project.

        Raises:
            OSError: it cannot be read.
        """
        if not path.is_file() or (path.is_symlink() and not links):
            return self
        rules = patterns(path.read_bytes())
        return Ignore(base, rules, self) if rules else self

    def verdict(self, path: bytes, *, folder: bool) -> bool | None:
        """Return whether an entry is ignored, or None if no pattern names it."""
        rules: Ignore | None = self
        while rules:
            if path.startswith(rules.base):
                below = path[len(rules.base) :]
                for pattern in reversed(rules.patterns):
                    if pattern.matches(below, folder=folder):
                        return not pattern.includes
            rules = rules.above
        return None

    def excludes(self, path: bytes, *, folder: bool) -> bool:
        """Return whether an entry is ignored, apart from its folder."""
        return bool(self.verdict(path, folder=folder))


@dataclass(frozen=True)
class Above:
    """What holds in a folder because of what lies above it; paths are those from `top`.

    `ignored` if the rules ignore the folder itself.
    """

    rules: Ignore
    top: Path
    ignored: bool = False


def above(root: Path) -> Above | None:
    """Return what holds in a folder of a repository; None if it is in none."""
    top = top_of(root)
    if top is None:
        return None
    rules = repository_rules(top)
    place = b""
    for part in root.relative_to(top).parts:
        # Git goes on without one that cannot be read.
        with suppress(OSError):
            rules = rules.with_file(top / os.fsdecode(place) / GITIGNORE, place)
        place += os.fsencode(part)
        if rules.excludes(place, folder=True):
            return Above(rules, top, ignored=True)
        place += b"/"
    return Above(rules, top)


def top_of(root: Path) -> Path | None:
    """Return the top of the repository that a folder is in."""
    device = root.stat().st_dev
    # A folder further up may not be ours to look into.
    with suppress(OSError):
        for folder in (root, *root.parents)[:MOST_FOLDERS]:
            # Git stays on one file system too.
            if folder.stat().st_dev != device:
                break
            if is_repository(folder):
                return folder
    return None


def is_repository(folder: Path) -> bool:
    """Tell whether a folder is the top of a repository, of a worktree or of a submodule."""
    git_folder = folder / ".git"
    return git_folder.is_file() or (git_folder / "HEAD").is_file()


def repository_rules(top: Path, base: bytes = b"") -> Ignore:
    """Return the rules of a repository that are in no .gitignore: the user's, and its own."""
    rules = Ignore()
    # Git goes on without a file that it cannot read.
    with suppress(OSError):
        rules = rules.with_file(_users_file(), base, links=True)
    with suppress(OSError):
        rules = rules.with_file(_shared_folder(top) / "info" / "exclude", base, links=True)
    return rules


def _shared_folder(top: Path) -> Path:
    """Return the folder with a repository's data, which its worktrees share."""
    own = top / ".git"
    if own.is_file():
        text = own.read_text(encoding="utf-8", errors="surrogateescape")
        own = top / text.removeprefix("gitdir:").strip()
    shared = own / "commondir"
    if shared.is_file():
        own /= shared.read_text(encoding="utf-8", errors="surrogateescape").strip()
    return own


def _users_file() -> Path:
    """Return core.excludesFile as the user configured it, for all repositories."""
    try:
        # From a place that is in no repository, so that git reads only the user's configuration.
        output = git(Path("/"), "config", "--path", "--get", "core.excludesFile")
        return Path(os.fsdecode(output.removesuffix(b"\n")))
    except GitFailed:
        home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - without a home it stays as it is
        return Path(home, "git", "ignore")
