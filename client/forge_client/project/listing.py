"""The entries of a folder's bundle."""

import hashlib
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import translate
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from forge_client.errors import ClientError, InvalidInput
from forge_client.project.git.ignored import FORGEIGNORE, GITIGNORE, Ignore

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

ALWAYS = frozenset({".git", ".hg", ".jj", ".svn", ".venv", "__pycache__", ".forge"})
FILES = (GITIGNORE, FORGEIGNORE)  # the later file takes precedence
# What a tracker and a trainer write beside a program, unless it is a package of the project.
RESULTS = frozenset({"wandb", "lightning_logs", "multirun"})
OLD_RESULTS = "results of earlier runs"
# Later stores into a mapped file are stamped once the kernel has written the page back, which it
# does every 30 to 35 s; the clocks of all file systems are finer.
SETTLED_NS = 60_000_000_000
# In an environment, whatever its name: of Python's own making, and of conda's.
ENVIRONMENTS = ("pyvenv.cfg", "conda-meta/history")
IGNORE_HINT = "list it in .forgeignore if the job does not need it"


def is_always_out(name: str) -> bool:
    """Return whether the entry with this path below the root is excluded unconditionally."""
    return name.rpartition("/")[2] in ALWAYS


def is_environment(folder: Path) -> bool:
    """Return whether a folder is an environment with installed packages."""
    return any((folder / mark).is_file() for mark in ENVIRONMENTS)


def leaves_out(root: Path, name: str) -> bool:
    """Tell whether a bundle leaves out a file of this name that git tracks, and need not exist."""
    rules, parts = Ignore(), name.split("/")
    for depth in range(1, len(parts) + 1):
        above, path = "/".join(parts[: depth - 1]), "/".join(parts[:depth])
        base = os.fsencode(f"{above}/" if above else "")
        rules = rules.with_file(root / above / FORGEIGNORE, base, links=True)
        if is_always_out(path) or rules.excludes(os.fsencode(path), folder=depth < len(parts)):
            return True
    return is_credential(name)


# Compared in lower case. Bundles are kept for long, and every worker that runs the job gets one.
CREDENTIALS = (
    ".env", ".env.*", "!.env.example", "!.env.sample", "!.env.template", ".envrc",
    "*.pem", "*.key", "*.p12", "*.pfx", "*.ppk",
    "id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk",
    ".aws/", ".azure/", ".gnupg/", ".kaggle/", ".kube/", ".ssh/",
    ".netrc", "_netrc", ".boto", ".git-credentials", ".pgpass", ".pypirc", ".s3cfg",
    "kaggle.json", "application_default_credentials.json",
    "*service-account*.json", "*service_account*.json",
)  # fmt: skip
# What no pattern names, which is nearly everything, is passed by this one expression.
_SUSPECT = re.compile("|".join(translate(pattern.strip("!/")) for pattern in CREDENTIALS))
SHOWN = 5
# Why links are left out that lead nowhere.
BROKEN = "broken links"


def is_credential(name: str) -> bool:
    """Return whether an entry is a credential by its path, which ends in a slash for a folder."""
    name = name.lower()
    return any(map(_SUSPECT.match, name.split("/"))) and _patterns(CREDENTIALS).match_file(name)


@cache
def _patterns(lines: tuple[str, ...]) -> "GitIgnoreSpec":
    # A twentieth of a submit, in which hardly any name is suspect.
    from pathspec import GitIgnoreSpec  # noqa: PLC0415

    return GitIgnoreSpec.from_lines(lines)


@dataclass(frozen=True)
class LeftOut:
    """A path below the bundle's root that was left out, and why."""

    path: str
    why: str


class Guard:
    """Excludes files that no ignore file names; `include` are patterns that override it.

    Raises:
        ClientError: `include` has an invalid pattern.
    """

    def __init__(self, include: Sequence[str] = ()) -> None:
        self._patterns = [text for text in include if text.strip() and not text.startswith("#")]
        self._include = self._read() if self._patterns else None
        self._unmatched = dict.fromkeys(self._patterns)

    def _read(self) -> "GitIgnoreSpec":
        try:
            return _patterns(tuple(self._patterns))
        except ValueError as error:
            raise ClientError(
                f"--include: not a pattern: {error}",
                hint="write it as in .gitignore: --include .env, --include 'certs/*.pem'",
                code="include_invalid",
            ) from error

    def includes(self, name: str, *, folder: bool) -> bool:
        """Return whether a pattern includes an entry, overriding all other rules."""
        if self._include is None:
            return False
        verdict = self._include.check_file(f"{name}/" if folder else name)
        if verdict.index is not None:
            self._unmatched.pop(self._patterns[verdict.index], None)
        return bool(verdict.include)

    @property
    def unmatched(self) -> tuple[str, ...]:
        """The patterns that have matched nothing so far."""
        return tuple(self._unmatched)

    def reason(self, name: str, path: Path, *, folder: bool) -> str | None:
        """Return why an entry is left out, or None if it is not."""
        if folder and path.name in RESULTS and not (path / "__init__.py").is_file():
            return OLD_RESULTS
        if is_credential(f"{name}/" if folder else name):
            return "credentials"
        if folder and is_environment(path):
            return "a virtual environment"
        return "installed packages" if folder and path.name == "node_modules" else None


def unmatched_sentence(patterns: Sequence[str]) -> str:
    """Return a warning about patterns of --include that matched nothing; "" for none."""
    if not patterns:
        return ""
    names = ", ".join(map(shlex.quote, patterns))
    return f"--include {names}: no such file, or its folder is left out: include the folder"


def sentence(left_out: Sequence[LeftOut]) -> str:
    """Return a line about what is left out, and how to include it; "" for nothing."""
    if not left_out:
        return ""
    by_reason = sorted(
        left_out, key=lambda entry: (entry.why != "credentials", entry.why, entry.path)
    )
    groups = [
        f"{_names([entry.path for entry in group])} ({why})"
        for why, group in groupby(by_reason, key=lambda entry: entry.why)
    ]
    first = next((entry for entry in by_reason if entry.why != BROKEN), None)
    secret = "use --secret, or " if by_reason[0].why == "credentials" else ""
    include = f"; {secret}--include {shlex.quote(first.path)}" if first else ""
    return f"left out: {'; '.join(groups)}{include}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def not_packed(message: str, hint: str = "", code: str = "bundle_invalid") -> InvalidInput:
    """Return the error of a folder that cannot be packed into a bundle."""
    return InvalidInput(message, hint, code=code)


@dataclass(frozen=True)
class BundleEntry:
    """A file or folder of the bundle: `name` in the bundle, `path` of its content.

    With a `link`, it is a link with this text, to a file or to a `folder`. An inode's `ctime_ns`
    is set by the kernel at each change of the file, and by nobody else.
    """

    name: str
    path: Path
    folder: bool
    executable: bool = False
    size: int = 0
    mtime_ns: int = 0
    link: str | None = None
    inode: int = 0
    ctime_ns: int = 0


@dataclass(frozen=True)
class Listing:
    """The entries, each after its parent folder.

    `left_out` are the paths left out although no ignore file names them, and `ignored` those that
    one names; `unmatched` are the patterns of `include` that matched nothing. The `faults` are the
    reasons why git could not be asked which files are the project's; `submodules` are those that
    are not checked out. It began `at_ns`, in nanoseconds since the epoch.
    """

    root: Path
    entries: tuple[BundleEntry, ...]
    left_out: tuple[LeftOut, ...] = ()
    unmatched: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()
    at_ns: int = 0

    @property
    def fingerprint(self) -> str | None:
        """What tells this listing from that of any other content, or of later content.

        As in git's index, a file is known by its size, times and inode. None if these do not tell:
        for a while after a change, and in memory.
        """
        newest = max((entry.ctime_ns for entry in self.files), default=0)
        if newest > self.at_ns - SETTLED_NS or _in_memory(self.root):
            return None
        digest = hashlib.sha256()
        for each in self.entries:
            kind = (
                each.folder,
                each.executable,
                each.size,
                each.mtime_ns,
                each.ctime_ns,
                each.inode,
            )
            digest.update(
                f"{each.name}\0{each.link}\0{each.path}\0{kind}\0".encode(errors="surrogateescape")
            )
        return digest.hexdigest()

    @property
    def links_last(self) -> list[BundleEntry]:
        """The entries as a bundle has them: whoever unpacks it writes nothing through a link."""
        return sorted(self.entries, key=lambda entry: entry.link is not None)

    @property
    def files(self) -> tuple[BundleEntry, ...]:
        """The entries that are files, or links to files."""
        return tuple(entry for entry in self.entries if not entry.folder)

    @property
    def total_bytes(self) -> int:
        """The size of all files, in bytes, before compression."""
        return sum(entry.size for entry in self.entries)


def _in_memory(folder: Path) -> bool:
    """Return whether a folder is on tmpfs, which stamps a mapped file at its first store alone."""
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError), Path("/proc/self/mountinfo").open(encoding="utf-8") as mounts:
        # The fields before the dash are of the mount, those after it of the file system.
        kinds = [line.partition(" - ")[2] for line in mounts if line.split()[2] == number]
        return any(kind.startswith("tmpfs ") for kind in kinds)
    return False


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn an error from reading something into an error that names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise not_packed(
            f"{name} disappeared while it was packed",
            code="file_changed",
            hint="try again when nothing writes to the folder",
        ) from error
    except OSError as error:
        raise not_packed(
            f"{name} cannot be read: {error.strerror}",
            code="file_unreadable",
            hint=f"give yourself permission to read it, or {IGNORE_HINT}",
        ) from error
