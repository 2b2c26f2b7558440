"""Exclude files from a bundle: by ignore files, as credentials, or as installed packages."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from pathspec import GitIgnoreSpec

from forge_client.errors import ClientError

ALWAYS = frozenset({".git", ".venv", "__pycache__", ".forge"})
FILES = (".gitignore", ".forgeignore")  # the later file takes precedence


def is_always_out(name: str) -> bool:
    """Return whether the entry with this path below the root is excluded unconditionally."""
    return name.rpartition("/")[2] in ALWAYS


@dataclass(frozen=True)
class Ignore:
    """The rules in one folder: its own rules override those of its parents."""

    base: str = ""
    spec: GitIgnoreSpec | None = None
    above: "Ignore | None" = None

    def within(self, folder: Path, name: str) -> "Ignore":
        """Return the rules inside `folder`, whose path below the bundle's root is `name`.

        Raises:
            ClientError: an ignore file contains an invalid pattern.
            OSError: an ignore file cannot be read.
        """
        lines = [line for file in FILES for line in _lines(folder / file)]
        if not lines:
            return self
        return Ignore(f"{name}/" if name else "", GitIgnoreSpec.from_lines(lines), self)

    def excludes(self, name: str, *, folder: bool) -> bool:
        """Return whether the entry with this path below the root is excluded."""
        asked = f"{name}/" if folder else name
        rules: Ignore | None = self
        while rules:
            if rules.spec:
                verdict = rules.spec.check_file(asked.removeprefix(rules.base)).include
                if verdict is not None:
                    return verdict
            rules = rules.above
        return False


def leaves_out(root: Path, name: str) -> bool:
    """Tell whether a project's bundle leaves out a file of this name, which need not exist."""
    ignore, parts = Ignore().within(root, ""), name.split("/")
    for depth in range(1, len(parts) + 1):
        path, folder = "/".join(parts[:depth]), depth < len(parts)
        if is_always_out(path) or ignore.excludes(path, folder=folder):
            return True
        if folder:
            ignore = ignore.within(root / path, path)
    return CREDENTIALS.match_file(name.lower())


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        return []
    text = path.read_text("utf-8-sig", errors="replace")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    for number, line in enumerate(lines, start=1):
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError as error:
            raise ClientError(
                f"line {number} of {path} is not a pattern: {line!r}",
                hint="correct the line; the syntax is that of .gitignore",
                code="ignore_file_invalid",
            ) from error
    return lines


# Compared in lower case. Bundles are kept for long, and every worker that runs the job gets one.
CREDENTIALS = GitIgnoreSpec.from_lines([
    ".env", ".env.*", "!.env.example", "!.env.sample", "!.env.template", ".envrc",
    "*.pem", "*.key", "*.p12", "*.pfx", "*.ppk",
    "id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk",
    ".aws/", ".azure/", ".gnupg/", ".kaggle/", ".kube/", ".ssh/",
    ".netrc", "_netrc", ".boto", ".git-credentials", ".pgpass", ".pypirc", ".s3cfg",
    "kaggle.json", "application_default_credentials.json",
    "*service-account*.json", "*service_account*.json",
])  # fmt: skip
SHOWN = 5


@dataclass(frozen=True)
class LeftOut:
    """A path below the bundle's root that was left out, and why."""

    name: str
    why: str


class Guard:
    """Excludes files that no ignore file names; `include` are patterns that override it.

    Raises:
        ClientError: `include` has an invalid pattern.
    """

    def __init__(self, include: Sequence[str] = ()) -> None:
        self._patterns = [one for one in include if one.strip() and not one.startswith("#")]
        self._unmatched = dict.fromkeys(self._patterns)
        try:
            self._include = GitIgnoreSpec.from_lines(self._patterns)
        except ValueError as error:
            raise ClientError(
                f"--include: not a pattern: {error}",
                hint="write it as in .gitignore: --include .env, --include 'certs/*.pem'",
                code="include_invalid",
            ) from error

    def includes(self, name: str, *, folder: bool) -> bool:
        """Return whether a pattern includes an entry, overriding all other rules."""
        found = self._include.check_file(f"{name}/" if folder else name)
        if found.index is not None:
            self._unmatched.pop(self._patterns[found.index], None)
        return bool(found.include)

    @property
    def unmatched(self) -> tuple[str, ...]:
        """The patterns that have matched nothing so far."""
        return tuple(self._unmatched)

    def reason(self, name: str, path: Path) -> str | None:
        """Return why an entry is left out, or None if it is not."""
        folder = path.is_dir()
        if CREDENTIALS.match_file((f"{name}/" if folder else name).lower()):
            return "credentials"
        if folder and (path / "pyvenv.cfg").is_file():
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
    by_reason = sorted(left_out, key=lambda one: (one.why != "credentials", one.why, one.name))
    groups = [
        f"{_names([one.name for one in group])} ({why})"
        for why, group in groupby(by_reason, key=lambda one: one.why)
    ]
    secret = "use --secret, or " if by_reason[0].why == "credentials" else ""
    return f"left out: {'; '.join(groups)}; {secret}--include {shlex.quote(by_reason[0].name)}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
