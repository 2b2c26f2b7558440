"""Which entries of a folder are a project's own: git's list, and where there is none, its rules."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from forge_schema.model.bundles import folded_name

from forge_client.errors import ClientError
from forge_client.project.git.ignored import (
    FORGEIGNORE,
    GITIGNORE,
    Ignore,
    above,
    is_repository,
    repository_rules,
)
from forge_client.project.git.program import (
    LISTING_SECONDS,
    GitFailed,
    NoRepository,
    git,
    tried,
)

GITLINK = b"160000"


@dataclass(frozen=True)
class GitListing:
    """What git lists of a repository below a folder: all that is tracked, or not ignored.

    `folders` have some of the `names` in them, and `inner` are repositories of their own. With
    `folded`, the disk and the index may write a name differently.
    """

    names: frozenset[str]
    folders: frozenset[str]
    inner: frozenset[str]
    tracked: bool
    folded: bool = False

    def has(self, name: str, *, folder: bool) -> bool:
        """Tell whether an entry is in the list, or something in it is."""
        name = folded_name(name) if self.folded else name
        return name in self.inner or name in (self.folders if folder else self.names)

    def is_inner(self, name: str) -> bool:
        """Tell whether a folder is a repository of its own."""
        return (folded_name(name) if self.folded else name) in self.inner


def listed(root: Path, below: str = "") -> GitListing:
    """Ask git for its list of a folder, whose path below the bundle's root is `below`.

    Raises:
        NoRepository: it is in none.
        GitFailed: git cannot be asked.
    """
    staged = git(root, "ls-files", "-z", "--stage", seconds=LISTING_SECONDS)
    others = git(root, "ls-files", "-z", "--others", "--exclude-standard", seconds=LISTING_SECONDS)
    entries = [line.partition(b"\t") for line in staged.split(b"\0") if line]
    links = [name for kind, _, name in entries if kind.startswith(GITLINK)]
    new = [name for name in others.split(b"\0") if name]
    inner = [*links, *(name.removesuffix(b"/") for name in new if name.endswith(b"/"))]
    folded = any(
        (tried(root, "config", "--type=bool", "--get", key) or b"").strip() == b"true"
        for key in ("core.ignoreCase", "core.precomposeUnicode")
    )

    def named(names: Iterable[bytes]) -> frozenset[str]:
        whole = (below + os.fsdecode(name) for name in names)
        return frozenset(map(folded_name, whole) if folded else whole)

    files = named([*(name for _, _, name in entries), *new])
    insides = named(inner)
    return GitListing(
        files, _folders(files | insides), insides, tracked=bool(entries), folded=folded
    )


def _folders(names: Iterable[str]) -> frozenset[str]:
    folders: set[str] = set()
    for name in names:
        above, slash, _ = name.rpartition("/")
        while slash and above not in folders:
            folders.add(above)
            above, slash, _ = above.rpartition("/")
    return frozenset(folders)


@dataclass(frozen=True)
class Rules:
    """What decides about the entries of a folder.

    `forge` are the rules of the .forgeignore files, which come first. Then git's list decides, and
    without one the rules of git's ignore files. Those are always known, for folders in which
    git lists nothing: it knows no empty ones. Their paths begin with `prefix`, the path of the
    bundle's root below the repository's top. `shut` if the folder itself is ignored.
    """

    forge: Ignore = field(default_factory=Ignore)
    ignore: Ignore = field(default_factory=Ignore)
    prefix: bytes = b""
    listed: GitListing | None = None
    shut: bool = False

    def within(self, path: Path, name: str) -> "Rules":
        """Return the rules inside a folder, whose path below the bundle's root is `name`.

        Raises:
            ClientError: a line of a .forgeignore is no pattern; git takes no notice of such.
            OSError: an ignore file cannot be read.
        """
        base = os.fsencode(name) + b"/" if name else b""
        forge = self.forge.with_file(path / FORGEIGNORE, base, links=True)
        if forge is not self.forge:
            _check(path / FORGEIGNORE, forge)
        return replace(
            self,
            forge=forge,
            ignore=self.ignore.with_file(path / GITIGNORE, self.prefix + base),
        )

    def verdict(self, name: str, *, folder: bool, link: bool) -> tuple[bool, "Rules"]:
        """Return whether an entry is left out, and if not, the rules for what is inside it.

        Args:
            name: its path below the bundle's root.
            folder: whether it is a folder, or a link to one.
            link: whether it is a link, which is no folder to git.
        """
        path = os.fsencode(name)
        wanted, folder = self.forge.verdict(path, folder=folder), folder and not link
        ignored = self.shut or self.ignore.excludes(self.prefix + path, folder=folder)
        if self.listed and self.listed.has(name, folder=folder):
            out, inside = False, replace(self, shut=ignored)
        else:
            # Nothing of an empty folder is in a list.
            out = ignored or (self.listed is not None and not folder)
            inside = self
        if wanted is None:
            return out, inside
        # A folder that is included again is so with all that other rules do not name.
        again = replace(self, listed=None, shut=False) if out and not wanted else inside
        return wanted, again


def _check(path: Path, rules: Ignore) -> None:
    for pattern in rules.patterns:
        if pattern.text.strip(b"/ ") and not pattern.ends_in_escape:
            continue
        raise ClientError(
            f"line {pattern.line} of {path} is not a pattern",
            hint="correct the line; the syntax is that of .gitignore",
            code="ignore_file_invalid",
        )


@dataclass
class Tree:
    """The rules of a bundle's folder; `faults` are the reasons why git could not be asked.

    The `submodules` are those that were found and are not checked out.
    """

    root: Path
    faults: list[str] = field(default_factory=list)
    submodules: list[str] = field(default_factory=list)

    def rules(self) -> Rules:
        """Return the rules that hold in the root."""
        repository = above(self.root)
        if repository is None:
            return Rules()
        known = self._listed(self.root, "")
        if repository.ignored and not (known and known.tracked):
            # Whoever submits a folder that is ignored means its content.
            return Rules()
        place = os.fsencode(self.root.relative_to(repository.top).as_posix())
        prefix = b"" if place == b"." else place + b"/"
        return Rules(Ignore(), repository.rules, prefix, known, shut=repository.ignored)

    def inside(self, path: Path, name: str, rules: Rules) -> Rules:
        """Return the rules inside a folder: others, if it is a repository of its own."""
        inner = rules.listed is None or rules.listed.is_inner(name)
        if not (inner and name and is_repository(path)):
            if not (rules.listed and inner):
                return rules
            # A submodule, but not its content: nothing is there, or what git knows nothing of.
            if not any(path.iterdir()):
                self.submodules.append(name)
            return replace(rules, listed=None)
        base = os.fsencode(name) + b"/"
        return Rules(rules.forge, repository_rules(path, base), b"", self._listed(path, f"{name}/"))

    def _listed(self, path: Path, below: str) -> GitListing | None:
        try:
            return listed(path, below)
        except NoRepository:
            return None
        except GitFailed as error:
            if (why := str(error)) not in self.faults:
                self.faults.append(why)
            return None
