"""The ignore files that hold in a folder, as git finds them: for where git cannot be asked."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from forge_client.project.git.patterns import Pattern, patterns
from forge_client.project.git.program import GitFailed, git

GITIGNORE, FORGEIGNORE = ".gitignore", ".forgeignore"
# A chain of these is as deep as folders may be; a repository's top is not further up.
MOST_FOLDERS = 256


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
