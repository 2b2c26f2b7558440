"""The git state of a project: its revision, its branch, and what is not committed."""

import re
from pathlib import Path
from typing import Any

from forge_schema.model.quantities import counted

from forge_client.project.git.ignored import top_of
from forge_client.project.git.program import tried, without_filters
from forge_client.project.listing import Listing, leaves_out

# No more of a diff is kept: the bundle has the files.
MOST_DIFF_BYTES, MOST_FILES = 4 << 20, 1000
# Whatever the user's configuration is, `git apply` takes the diff.
APPLICABLE = ("--no-color", "--src-prefix=a/", "--dst-prefix=b/", "--unified=3")
# A renamed file is one that is gone and one that is new: both are told by name.
PLAIN = ("--no-ext-diff", "--no-textconv", "--no-renames", *APPLICABLE, "--relative", "HEAD")
FILE = b"diff --git "
UNCOMMITTED = "uncommitted.diff"


def git_state(listing: Listing) -> tuple[dict[str, Any], bytes, list[str]] | None:
    """Return a job's `git` for a project's folder, the changes since, and what these leave out.

    The changes are those of tracked files that are in the bundle, or would be if they were there.
    Without a repository, return None.
    """
    root = listing.root
    # Without one, which these files tell, no git has to be started.
    if top_of(root) is None:
        return None
    revision = _output(root, "rev-parse", "--verify", "HEAD^{commit}")
    if revision is None:
        return None
    branch = _output(root, "symbolic-ref", "--short", "-q", "HEAD")
    state = {"revision": revision, **({"branch": branch} if branch else {})}
    calm = without_filters(root)
    changed = tried(root, *calm, "status", "--porcelain", "--", ".")
    if not changed:
        return state, b"", []
    return {**state, "dirty": True}, *_diff(listing, calm)


def _diff(listing: Listing, calm: tuple[str, ...]) -> tuple[bytes, list[str]]:
    """Return the changes of tracked files; what a bundle leaves out may hold secrets."""
    root = listing.root
    names = _names(tried(root, *calm, "diff", "--name-only", "-z", *PLAIN) or b"")
    gone = tried(root, *calm, "diff", "--name-only", "-z", "--diff-filter=D", *PLAIN) or b""
    deleted = {name for name in _names(gone) if not leaves_out(root, name)}
    shown = sorted(
        ({entry.name for entry in listing.entries if not entry.folder or entry.link} & names)
        | deleted
    )
    modules = sorted(name for name in names.difference(shown) if (root / name).is_dir())
    left_out = [f"the changes in the submodule {name}" for name in modules]
    if len(shown) > MOST_FILES:
        left_out.append(f"the changes of {counted(len(shown), 'file')}, more than {MOST_FILES:,}")
        shown = []
    paths = [f":(literal){name}" for name in shown]
    diff = (tried(root, *calm, "diff", "--binary", *PLAIN, "--", *paths) or b"") if paths else b""
    diff, large = _without_the_largest(diff)
    left_out += [f"{name}, whose change is too large" for name in large]
    # Whoever applies the patch reads it too; git takes no notice.
    notes = "".join(f"# left out: {what}\n" for what in left_out)
    return notes.encode() + diff, left_out


def _without_the_largest(diff: bytes) -> tuple[bytes, list[str]]:
    """Return as much of a diff as is kept, and the names of the files that are not in it."""
    if len(diff) <= MOST_DIFF_BYTES:
        return diff, []
    # No other line begins so: each has a sign or a space before it.
    files = [FILE + part for part in re.split(rb"^diff --git ", diff, flags=re.MULTILINE)[1:]]
    kept, free = set(), MOST_DIFF_BYTES
    for place in sorted(range(len(files)), key=lambda place: len(files[place])):
        if (free := free - len(files[place])) < 0:
            break
        kept.add(place)
    large = [_name_in(part) for place, part in enumerate(files) if place not in kept]
    return b"".join(part for place, part in enumerate(files) if place in kept), large


def _name_in(change: bytes) -> str:
    # Both of its names are the same, `a/` and `b/` apart.
    head = change.removeprefix(FILE).partition(b"\n")[0].decode(errors="replace")
    return head[2 : len(head) // 2]


def _names(listed: bytes) -> set[str]:
    # A name that is no UTF-8 is in no bundle.
    return {
        name
        for name in listed.decode(errors="replace").split("\0")
        if name and "\ufffd" not in name
    }


def _output(root: Path, *words: str) -> str | None:
    answer = tried(root, *words)
    return answer.decode(errors="replace").strip() if answer else None
