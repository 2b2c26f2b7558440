"""List what a folder's bundle holds, and check it before packing."""

import errno
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from forge_schema.model.bundles import folded_name, link_fault, name_fault
from forge_schema.model.quantities import counted

from forge_client.errors import InvalidInput
from forge_client.project.git.tree import Rules, Tree
from forge_client.project.listing import (
    ALWAYS,
    BROKEN,
    IGNORE_HINT,
    OLD_RESULTS,
    BundleEntry,
    Guard,
    LeftOut,
    Listing,
    is_always_out,
    not_packed,
    readable,
)

MOST_ENTRIES = 100_000
# As many links as a kernel follows.
MOST_HOPS = 40
PROJECT_MARKS = ("forge.toml", "pyproject.toml")
# So many faults are named.
MOST_FAULTS = 100
# Where git-annex, and DataLad with it, keep the content of a file that they show as a link.
ANNEX = ".git/annex/objects/"
ANNEX_HINT = f"make it a file with `git annex get` and `git annex unlock`, or {IGNORE_HINT}"
NOWHERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
# A folder with these is not looked at further; all other faults are collected.
FATAL = {"bundle_too_large", "file_changed"}


def _require_project(root: Path) -> None:
    """Refuse the folders that hold everything, unless they say that they are projects."""
    is_home = str(root) == os.path.realpath(os.environ.get("HOME") or "/")
    if not (is_home or str(root) == "/") or any((root / name).exists() for name in PROJECT_MARKS):
        return
    what = "the whole file system" if str(root) == "/" else "your home folder"
    raise not_packed(
        f"{root} is {what}, not a project",
        code="bundle_invalid",
        hint="name the folder with the job's code; a home that is a project has a forge.toml",
    )


def require_folder(folder: Path) -> None:
    """Check that there is a folder; `InvalidInput` if there is none."""
    if not folder.exists():
        raise not_packed(
            f"folder {folder} does not exist", code="folder_missing", hint="check the path"
        )


def scan(folder: Path, *, include: Sequence[str] = ()) -> Listing:
    """List the content of a bundle of `folder`.

    A relative link that stays in the folder remains one if what it leads to is listed. Other links
    within the folder are replaced by their targets. A folder is listed if it is empty or something
    in it is listed.

    Args:
        folder: the folder to list.
        include: patterns as in .gitignore, of files to list that would otherwise be left out.

    Raises:
        InvalidInput: there is no such folder, or it has entries that cannot be packed.
    """
    require_folder(folder)
    if not folder.is_dir():
        raise not_packed(
            f"{folder} is not a folder",
            code="not_a_folder",
            hint="the folder comes first: forge submit . -- python train.py",
        )
    root, at_ns = folder.resolve(), time.time_ns()
    _require_project(root)
    a_scan = _Scan(root, Guard(include), Tree(root))
    entries = tuple(a_scan.run())
    return Listing(
        root,
        entries,
        tuple(a_scan.left_out),
        a_scan.guard.unmatched,
        tuple(a_scan.ignored),
        tuple(a_scan.tree.faults),
        tuple(a_scan.tree.submodules),
        at_ns,
    )


def _outputs() -> frozenset[tuple[int, int]]:
    """Return the files that this process writes its output to, which change while one is packed."""
    outputs = set()
    for stream in (1, 2):
        with suppress(OSError):
            status = os.fstat(stream)
            if stat.S_ISREG(status.st_mode):
                outputs.add((status.st_dev, status.st_ino))
    return frozenset(outputs)


@dataclass
class _Scan:
    root: Path
    guard: Guard
    tree: Tree
    left_out: list[LeftOut] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    faults: list[InvalidInput] = field(default_factory=list)
    seen: dict[str, str] = field(default_factory=dict)
    open_folders: list[tuple[int, int]] = field(default_factory=list)
    copying: bool = False
    outputs: frozenset[tuple[int, int]] = field(default_factory=_outputs)

    def run(self) -> list[BundleEntry]:
        with readable("."):
            rules = self.tree.rules()
        entries = self._with_links(self._folder(self.root, "", rules)[0])
        if self.faults:
            raise _together(self.faults)
        return sorted(entries, key=lambda entry: entry.name.split("/"))

    def _folder(self, path: Path, name: str, rules: Rules) -> tuple[list[BundleEntry], bool]:
        """List a folder's content, and return whether the folder is really empty."""
        with readable(name or "."), self._entered(path, name):
            rules = self.tree.inside(path, name, rules).within(path, name)
            with os.scandir(path) as listed:
                children = sorted(listed, key=lambda each: each.name)
            inside = [e for child in children for e in self._child(path, name, child, rules)]
            return inside, not children

    def _child(
        self, parent: Path, above: str, child: os.DirEntry[str], rules: Rules
    ) -> list[BundleEntry]:
        path, name = parent / child.name, f"{above}/{child.name}" if above else child.name
        link = child.is_symlink()
        folder = path.is_dir() if link else child.is_dir(follow_symlinks=False)
        try:
            return self._listed(path, name, rules, folder=folder, link=link)
        except InvalidInput as error:
            if error.code in FATAL:
                raise
            self.faults.append(error)
            return []

    def _listed(
        self, path: Path, name: str, rules: Rules, *, folder: bool, link: bool
    ) -> list[BundleEntry]:
        if is_always_out(name) or self._is_output(path) or (link and _is_editors_lock(path)):
            return []
        if not self.guard.includes(name, folder=folder):
            out, rules = rules.verdict(name, folder=folder, link=link)
            if out:
                self.ignored.append(f"{name}/" if folder and not link else name)
            if out or self._is_guarded(path, name, name, folder=folder):
                return []
        self._admit(name)
        return self._linked(path, name) if link else self._content(path, name, rules)

    def _is_output(self, path: Path) -> bool:
        if not self.outputs:
            return False
        with suppress(OSError):
            status = path.stat()
            return (status.st_dev, status.st_ino) in self.outputs
        return False

    def _is_guarded(self, path: Path, name: str, as_what: str, *, folder: bool) -> bool:
        """Tell whether an entry is left out although no ignore file names it, and note that."""
        with readable(name):
            why = self.guard.reason(as_what, path, folder=folder)
        shown = f"{name}/" if folder else name
        if why == OLD_RESULTS:
            self.ignored.append(shown)
        elif why:
            self.left_out.append(LeftOut(shown, why))
        return why is not None

    def _content(self, path: Path, name: str, rules: Rules) -> list[BundleEntry]:
        with readable(name):
            status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            inside, empty = self._folder(path, name, rules)
            return [BundleEntry(name, path, folder=True), *inside] if inside or empty else []
        if stat.S_ISREG(status.st_mode):
            return [_file(name, path, status)]
        raise not_packed(f"{name} is neither a file nor a folder", hint=IGNORE_HINT)

    def _admit(self, name: str) -> None:
        if fault := name_fault(name):
            raise not_packed(f"{name!r} {fault}", code="name_refused", hint=IGNORE_HINT)
        twin = self.seen.setdefault(folded_name(name), name)
        if twin != name:
            raise not_packed(
                f"{twin} and {name} are the same name on some file systems",
                code="name_refused",
                hint="rename one of them, or list one in .forgeignore",
            )
        if len(self.seen) > MOST_ENTRIES:
            raise not_packed(
                f"{self.root} contains more than {counted(MOST_ENTRIES, 'file')} and folders",
                code="bundle_too_large",
                hint="list data and build folders in .forgeignore",
            )

    def _linked(self, path: Path, name: str) -> list[BundleEntry]:
        if _is_broken(path):
            # A checkout has such links of things that nobody fetched; here nothing reads them.
            self.left_out.append(LeftOut(name, BROKEN))
            return []
        target = self._followed(path, name)
        folder, within = target.is_dir(), target.relative_to(self.root).as_posix()
        included = self.guard.includes(name, folder=folder)
        if not included and self._is_guarded(target, name, within, folder=folder):
            return []
        if path.is_relative_to(target):
            raise _circular(name)
        text = None if self.copying else _plain(path, name, target)
        if text is None:
            return self._content(target, name, Rules())
        return [BundleEntry(name, path, folder=folder, link=text)]

    def _with_links(self, entries: list[BundleEntry]) -> list[BundleEntry]:
        """Return entries in which each link leads to another; else it is what it leads to."""
        texts = {entry.name: entry.link for entry in entries if entry.link is not None}
        real = {each.name for each in entries if each.link is None}
        self.copying, made = True, list[BundleEntry]()
        for each in entries:
            made += self._kept(each, texts, real) if each.link is not None else [each]
        return made

    def _kept(
        self, entry: BundleEntry, texts: Mapping[str, str], real: set[str]
    ) -> list[BundleEntry]:
        target = Path(os.path.realpath(entry.path))
        if target.relative_to(self.root).as_posix() not in real:
            return self._copied(entry, target)
        if _arrives(entry.name, texts, real):
            return [entry]
        # It leads there through a link that is left out.
        return [replace(entry, link=_direct(entry.path, target))]

    def _copied(self, entry: BundleEntry, target: Path) -> list[BundleEntry]:
        try:
            return self._content(target, entry.name, Rules())
        except InvalidInput as error:
            if error.code in FATAL:
                raise
            self.faults.append(error)
            return []

    def _followed(self, path: Path, name: str) -> Path:
        target = Path(os.path.realpath(path))  # unlike resolve(), it accepts circular links
        if not target.is_relative_to(self.root):
            raise not_packed(
                f"{name} is a link to {target}, outside {self.root}",
                code="link_leaves_folder",
                hint=f"replace it with a copy, or {IGNORE_HINT}",
            )
        if not target.exists():
            raise not_packed(f"{name} is a broken link", code="link_broken", hint=_hint(path))
        if left_out := ALWAYS.intersection(target.relative_to(self.root).parts):
            raise not_packed(
                f"{name} is a link into {min(left_out)}, which is never packed",
                code="link_leaves_folder",
                hint=_hint(path),
            )
        return target

    @contextmanager
    def _entered(self, path: Path, name: str) -> Iterator[None]:
        status = path.stat()
        identity = (status.st_dev, status.st_ino)
        if identity in self.open_folders:
            raise _circular(name)
        self.open_folders.append(identity)
        try:
            yield
        finally:
            self.open_folders.pop()


def _hint(link: Path) -> str:
    return ANNEX_HINT if ANNEX in link.readlink().as_posix() else IGNORE_HINT


def _is_broken(link: Path) -> bool:
    """Tell whether a link leads nowhere, and is not to a disk or an annex that may come back."""
    text = link.readlink().as_posix()
    try:
        link.stat()
    except OSError as error:
        return error.errno in NOWHERE and not (text.startswith("/") or ANNEX in text)
    return False


def _is_editors_lock(link: Path) -> bool:
    """Tell whether a link is Emacs's, which says who has unsaved changes of a file."""
    return link.name.startswith(".#") and not link.exists()


def _circular(name: str) -> InvalidInput:
    return not_packed(f"{name} is a circular link", code="link_circular", hint=IGNORE_HINT)


def _plain(path: Path, name: str, target: Path) -> str | None:
    """Return a link's text as a bundle has it; None if it is absolute, or leaves the folder."""
    text = path.readlink().as_posix()
    parts = [part for part in text.split("/") if part not in {"", "."}]
    up = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
    if text.startswith("/") or Path(text).is_absolute() or up > name.count("/"):
        return None
    plain = "/".join(parts) or "."
    return _direct(path, target) if link_fault(name, plain) else plain


def _arrives(name: str, texts: Mapping[str, str], real: set[str]) -> bool:
    """Tell whether a link leads to an entry of the bundle, through links of the bundle only."""
    place = name.split("/")[:-1]
    rest, hops = texts[name].split("/")[::-1], 0
    while rest:
        part = rest.pop()
        if part in {".", ".."}:
            place = place[: len(place) - (part == "..")]
            continue
        place.append(part)
        if text := texts.get("/".join(place)):
            place.pop()
            rest += text.split("/")[::-1]
            hops += 1
        elif "/".join(place) not in real:
            return False
        if hops > MOST_HOPS:
            return False
    return True


def _direct(path: Path, target: Path) -> str:
    return Path(os.path.relpath(target, os.path.realpath(path.parent))).as_posix()


def _file(name: str, path: Path, status: os.stat_result) -> BundleEntry:
    # Only the owner's bit, so that the umask of a checkout does not change the bundle.
    executable = bool(status.st_mode & stat.S_IXUSR)
    return BundleEntry(
        name,
        path,
        folder=False,
        executable=executable,
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        inode=status.st_ino,
        ctime_ns=status.st_ctime_ns,
    )


def _together(faults: Sequence[InvalidInput]) -> InvalidInput:
    """Return one error for all entries that cannot be packed."""
    if len(faults) == 1:
        return faults[0]
    codes, hints = {each.code for each in faults}, {each.hint for each in faults}
    lines = [f"\n  {fault.message}" for fault in faults[:MOST_FAULTS]]
    if more := len(faults) - MOST_FAULTS:
        lines += [f"\n  and {more} more"] if more > 0 else []
    return not_packed(
        f"{len(faults)} entries of the folder cannot be packed:{''.join(lines)}",
        code=codes.pop() if len(codes) == 1 else "bundle_invalid",
        hint=hints.pop() if len(hints) == 1 else "list them in .forgeignore, or replace them",
    )
