"""Which symbolic links of a job's folder are stored, and what of them."""

import posixpath
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePosixPath

from forge_schema.model.bundles import destination, stays_inside

# A lock names its holder, which is gone when the link is restored. Emacs and Firefox do so; others
# are recognised by their names.
HOLDER = re.compile(r"[^/]+@[^/]+\.\d+(:\d+)?|[^/]*:\+?\d+")
LOCK = re.compile(r".*\.lock|\.#.*|SingletonLock|SingletonCookie", re.DOTALL)


def is_lock(path: str, target: str, *, dangling: bool) -> bool:
    """Tell whether a link is a lock, which must not outlive its holder."""
    name = PurePosixPath(path).name
    if LOCK.fullmatch(name):
        return True
    pid = "lock" in name.lower() and target.isdecimal()
    return dangling and (pid or HOLDER.fullmatch(target) is not None)


def relative(
    path: str, target: str, links: Collection[str], *, before: str, roots: Iterable[str]
) -> str | None:
    """Return a target by which a link stays in its folder; None if it leads out of it.

    Args:
        path: the link's own path.
        target: what it says.
        links: the paths of all links in the folder.
        before: what the path of everything in the folder begins with.
        roots: the folder's absolute paths, as the job or the machine has them.
    """
    if stays_inside(path, target):
        return target
    above = posixpath.dirname(path)
    if target.startswith("/"):
        rest = next((t for root in roots if (t := _below(root, target)) is not None), None)
        if rest is None:
            return None
        inside = before + rest
    else:
        inside = posixpath.join(above, target)
    # Through a link, ".." leads elsewhere than it seems.
    parts = inside.split("/")
    passed = {posixpath.normpath("/".join(parts[: n + 1])) for n in range(len(parts) - 1)}
    if ".." in parts and not passed.isdisjoint(links):
        return None
    target_there = posixpath.relpath(f"/{posixpath.normpath(inside)}", f"/{above}")
    leaves = posixpath.normpath(inside).split("/")[0] == ".."
    return None if leaves or not stays_inside(path, target_there) else target_there


def _below(root: str, target: str) -> str | None:
    if target.rstrip("/") == root:
        return "."
    return target[len(root) + 1 :].lstrip("/") or "." if target.startswith(f"{root}/") else None


def kept(
    links: Mapping[str, str],
    there: Collection[str],
    stored: Collection[str],
    old: Mapping[str, str],
) -> dict[str, str]:
    """Return the links to store with some of a folder's files.

    A link to a file that is not stored, since it was being written, keeps its last stored target;
    and a folder of which no file is stored gets none. One that leads nowhere is stored as it is.
    """
    known = {*there, *_above(there)}
    reached = {*stored, *_above(stored), ""}
    chosen = {}
    for path, target in links.items():
        folder = posixpath.dirname(path)
        if path in reached or (folder in known and folder not in reached):
            continue
        if _reaches(path, target, known, reached):
            chosen[path] = target
        elif path in old and destination(path, old[path]) in reached:
            chosen[path] = old[path]
    return chosen


def _reaches(path: str, target: str, known: Collection[str], reached: Collection[str]) -> bool:
    leads_to = destination(path, target)
    return leads_to in reached or leads_to not in known


def _above(paths: Iterable[str]) -> set[str]:
    folders: set[str] = set()
    for path in paths:
        above = path.rpartition("/")[0]
        while above and above not in folders:
            folders.add(above)
            above = above.rpartition("/")[0]
    return folders
