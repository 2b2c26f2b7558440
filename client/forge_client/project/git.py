"""The git state of a project: its revision, its branch, and what is not committed."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from forge_schema.model.job import Git

from forge_client.project.ignore import leaves_out
from forge_client.project.listing import Listing

# A larger diff is not kept: the bundle has the files.
MOST_DIFF_BYTES, MOST_FILES = 4 << 20, 1000
SECONDS = 20
# Neither the repository's programs nor its locks: a submit only reads.
CALM = ("-c", "core.fsmonitor=false", "-c", "diff.external=", "--no-optional-locks")
# Whatever the user's configuration is, `git apply` takes the diff.
APPLICABLE = ("--no-color", "--src-prefix=a/", "--dst-prefix=b/")
PLAIN = ("--no-ext-diff", "--no-textconv", *APPLICABLE, "--relative", "HEAD")
UNCOMMITTED = "uncommitted.diff"


def git_state(listing: Listing) -> tuple[Git, bytes] | None:
    """Return the commit of a project's folder, and the changes since; None without a repository.

    The changes are those of tracked files that are in the bundle, or would be if they were there.
    """
    root = listing.root
    revision = _said(root, "rev-parse", "--verify", "HEAD^{commit}")
    if revision is None:
        return None
    branch = _said(root, "symbolic-ref", "--short", "-q", "HEAD")
    changed = _git(root, "status", "--porcelain", "--", ".")
    if not changed:
        return Git(revision=revision, branch=branch), b""
    return Git(revision=revision, branch=branch, dirty=True), _diff(listing)


def _diff(listing: Listing) -> bytes:
    """Return the changes of tracked files; what a bundle leaves out may hold secrets."""
    found = _git(listing.root, "diff", "--name-only", "-z", *PLAIN) or b""
    names = _names(found)
    gone = _git(listing.root, "diff", "--name-only", "-z", "--diff-filter=D", *PLAIN) or b""
    deleted = {name for name in _names(gone) if not leaves_out(listing.root, name)}
    shown = sorted(({entry.name for entry in listing.files} & names) | deleted)
    if not 0 < len(shown) <= MOST_FILES:
        return b""
    paths = [f":(literal){name}" for name in shown]
    diff = _git(listing.root, "diff", "--binary", *PLAIN, "--", *paths) or b""
    return diff if len(diff) <= MOST_DIFF_BYTES else b""


def _names(listed: bytes) -> set[str]:
    # A name that is no UTF-8 is in no bundle.
    return {
        name
        for name in listed.decode(errors="replace").split("\0")
        if name and "\ufffd" not in name
    }


def _said(root: Path, *words: str) -> str | None:
    answer = _git(root, *words)
    return answer.decode(errors="replace").strip() if answer else None


def _git(root: Path, *words: str) -> bytes | None:
    """Return what git prints; None if it fails, is missing or takes too long."""
    command: Sequence[str] = ("git", *CALM, "-C", str(root), *words)
    try:
        done = subprocess.run(  # noqa: S603 - the words are ours
            command,
            capture_output=True,
            timeout=SECONDS,
            check=False,
            env={**_own_environment(), "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _own_environment() -> dict[str, str]:
    """Return the variables without those by which a git hook names its repository."""
    hook = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
    return {name: value for name, value in os.environ.items() if name not in hook}
