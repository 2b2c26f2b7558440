"""Files of the submitter's machine that a list of packages names.

A lock is kept and installed elsewhere, so it names nothing but what is in the job's bundle. What
lies in the project is named from its root. What lies beside it, such as another member of a
workspace, comes along in a folder of its own.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from forge_schema.model.bundles import BESIDE

from forge_client.errors import ClientError
from forge_client.project.environment.tables import wrong
from forge_client.project.git.program import tried, without_filters
from forge_client.project.listing import BundleEntry, Listing
from forge_client.project.scan import scan

ARCHIVES = (".whl", ".zip", ".tar.gz", ".tar.bz2", ".tgz")
BUILDS = ("pyproject.toml", "setup.py", "setup.cfg")
# A line: an option, a name before @, what is installed, and what follows it.
LINE = re.compile(
    r"\s*(?P<option>-e\s*|--editable[\s=]+)?"
    r"(?:(?P<name>[A-Za-z0-9][\w.-]*\s*(?:\[[^\]]*\])?)\s*@\s*)?"
    r"(?P<place>[^\s;#]+)(?P<fragment>#\S*)?(?P<rest>.*)",
    re.DOTALL,
)
PROJECT_ROOT = re.compile(r"^file:/*\$\{PROJECT_ROOT\}")
FOUND_IN = re.compile(r"(--find-links )(?!\w+://)(?P<place>\S+)$")
EXTRAS = re.compile(r"\[[\w\s.,-]*\]$")
ON_THIS_MACHINE = re.compile(
    r"^\s*(?:-i|-f|--(?:index-url|extra-index-url|find-links))[\s=]+file:", re.MULTILINE
)


@dataclass(frozen=True)
class Place:
    """A file or folder that a line of a list installs: its path as written, and the line's rest."""

    text: str
    path: PurePosixPath
    extras: str
    rest: str


def place_in(line: str) -> Place | None:
    """Return the file or folder that a line names; None if it names a package, or is an option."""
    if line.lstrip().startswith(("#", "--")) and not line.lstrip().startswith("--editable"):
        return None
    match = LINE.match(line)
    if match is None or not match["place"]:
        return None
    text, extras = match["place"], EXTRAS.search(match["place"])
    bare = text.removesuffix(extras[0]) if extras else text
    path = _path(bare, sure=bool(match["option"] or match["name"]))
    if path is None:
        return None
    named = re.search(r"\[[^\]]*\]", match["name"] or "")
    more = (extras or named or ("",))[0].replace(" ", "")
    below = re.search(r"#(?:.*&)?subdirectory=([^&\s]+)", match["fragment"] or "")
    return Place(text, path / below[1] if below else path, more, match["rest"])


def _path(text: str, *, sure: bool) -> PurePosixPath | None:
    """Return a path; without an option or a name before it, only what can be nothing else."""
    if text.startswith("git+file:"):
        return PurePosixPath(unquote(urlsplit(text).path.partition("@")[0]))
    # PDM and uv name the project's folder so.
    text = PROJECT_ROOT.sub("file:.", text)
    if text.startswith("file:"):
        return PurePosixPath(unquote(re.sub(r"^file:(//(localhost)?)?", "", text)))
    if "://" in text or text.startswith(("git+", "hg+", "svn+", "bzr+", "git@", "-")):
        return None
    # No name of a package has a slash.
    begins = text in {".", ".."} or "/" in text
    return PurePosixPath(text) if sure or begins or text.endswith(ARCHIVES) else None


def refuse_elsewhere(text: str, called: str, root: Path, folder: Path) -> None:
    """Refuse a list that a worker installs from if it names what is not in the project.

    Args:
        text: the list's.
        called: its name, for people.
        root: the project's folder.
        folder: the one from which its paths start.

    Raises:
        ClientError: as said.
    """
    for line in text.splitlines():
        place = place_in(line)
        if place is None:
            continue
        paths = [_resolved(place.path, base) for base in (folder, root)]
        inside = [path for path in paths if path.is_relative_to(root)]
        if not any(path.exists() for path in inside):
            raise _elsewhere(called, line.strip(), place, root, paths[0])


def _resolved(path: PurePosixPath, base: Path) -> Path:
    return (base / Path(path).expanduser()).resolve()


def _elsewhere(called: str, line: str, place: Place, root: Path, path: Path) -> ClientError:
    if not path.exists() and path.is_relative_to(root):
        return wrong(
            f"{called}: {line!r} names {place.text}, which is not in the project",
            "correct the path, or name the package and its version in its place",
        )
    if not path.exists():
        return wrong(
            f"{called}: {line!r} names {place.text}, which is not on this machine",
            "name the package and its version in its place; `pip list --format=freeze` writes such"
            " a list of an environment",
        )
    both = Path(*_common(root, path))
    return wrong(
        f"{called}: {line!r} names {path}, which is outside the project {root}",
        f"submit from a folder that has both, such as {both}; or copy it into the project",
    )


def _common(path: Path, other: Path) -> Iterator[str]:
    for mine, theirs in zip(path.parts, other.parts, strict=False):
        if mine != theirs:
            return
        yield mine


@dataclass
class Carrier:
    """Makes a lock name only what is in the bundle, and collects what is added to the bundle."""

    listing: Listing
    entries: dict[str, BundleEntry] = field(default_factory=dict)
    folders: dict[Path, str] = field(default_factory=dict)

    def text(self, text: str, base: Path, called: str) -> str:
        """Return a lock whose paths start at the project's root.

        Args:
            text: the lock's.
            base: the folder from which its paths start now.
            called: the name of its source, for people.

        Raises:
            ClientError: it names something that cannot come along.
        """
        if match := ON_THIS_MACHINE.search(text):
            raise wrong(
                f"{called}: `{match[0].strip()}…` is an index on this machine",
                "name one that the workers reach, or a folder: --find-links ./wheels",
            )
        lines = [self._line(line, base, called) for line in text.splitlines()]
        return "".join(f"{line}\n" for line in lines)

    def _line(self, line: str, base: Path, called: str) -> str:
        if folder := FOUND_IN.match(line):
            return self._find_links(folder, base, called)
        place = place_in(line)
        if place is None:
            return line
        path = _resolved(place.path, base)
        if not path.exists():
            raise _elsewhere(called, line, place, self.listing.root, path)
        if place.text.startswith("git+file:"):
            _check_commit(path, place.text, called)
        return f"./{self._name(path, called)}{place.extras}{place.rest}".rstrip()

    def _find_links(self, match: re.Match[str], base: Path, called: str) -> str:
        """Return the option for a folder with wheels; one beside the project does not come along.

        An absolute path may be on a disk that the workers share.
        """
        if Path(match["place"]).is_absolute():
            return match[0]
        path = _resolved(PurePosixPath(match["place"]), base)
        if not path.is_relative_to(self.listing.root):
            raise wrong(
                f"{called}: `{match[0]}` is {path}, outside the project {self.listing.root}",
                "copy the folder into the project, or name an absolute path that the workers have",
            )
        return f"{match[1]}./{self._name(path, called)}"

    def _name(self, path: Path, called: str) -> str:
        """Return a path's name in the bundle."""
        root = self.listing.root
        if path.is_relative_to(root):
            name = path.relative_to(root).as_posix()
            if name != "." and not any(
                _is_below(entry.name, name) for entry in self.listing.entries
            ):
                raise wrong(
                    f"{called} names {name}, which is left out of the bundle",
                    "check .gitignore and .forgeignore; --include packs what they leave out",
                )
            return name
        if root.is_relative_to(path):
            raise wrong(
                f"{called} needs the package in {path}, which contains the project {root}",
                f"submit from there: cd {path}",
            )
        if path not in self.folders:
            self._add(path, called)
        return self.folders[path]

    def _add(self, path: Path, called: str) -> None:
        name = self._free(path.name)
        if path.is_dir() and any((path / part).is_file() for part in BUILDS):
            inside = [replace(entry, name=f"{name}/{entry.name}") for entry in scan(path).entries]
        elif path.is_file() and path.name.endswith(ARCHIVES):
            status = path.stat()
            name, size = f"{name}/{path.name}", status.st_size
            inside = [BundleEntry(name, path, folder=False, size=size, mtime_ns=status.st_mtime_ns)]
        else:
            raise wrong(f"{called} names {path}, which is no package", "correct it there")
        self.folders[path] = name
        above = [str(part) for part in PurePosixPath(name).parents if str(part) != "."]
        folders = [*reversed(above), *([name] if path.is_dir() else [])]
        added = [*(BundleEntry(folder, path, folder=True) for folder in folders), *inside]
        self.entries |= {entry.name: entry for entry in added if entry.name not in self.entries}

    def _free(self, name: str) -> str:
        taken = set(self.entries)
        names = (f"{BESIDE}/{name}{f'-{number}' if number else ''}" for number in range(10_000))
        return next(candidate for candidate in names if candidate not in taken)


def _check_commit(path: Path, url: str, called: str) -> None:
    """Refuse the folder of a repository if its files are not those of the commit in a lock."""
    commit = url.rpartition("@")[2]
    head = (tried(path, "rev-parse", "HEAD") or b"").decode().strip()
    changes = tried(path, *without_filters(path), "status", "--porcelain", "--", ".")
    if head != commit or changes:
        raise wrong(
            f"{called} has commit {commit[:12]} of {path}, where other files are checked out",
            "check that commit out there and commit what has changed, or lock it again",
        )


def _is_below(name: str, folder: str) -> bool:
    return name == folder or name.startswith(f"{folder}/")
