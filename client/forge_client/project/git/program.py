"""Run git in a folder whose content nobody vouches for: it reads, and starts nothing of theirs."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from forge_schema.model.quantities import duration_text

PROGRAM = "git"
# Neither the programs that a repository's configuration names nor locks in it, and no folder that
# only looks like a repository.
HARDENED = (
    "--no-optional-locks",
    *("-c", "core.fsmonitor=false"),
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "diff.external="),
    *("-c", "safe.bareRepository=explicit"),
)
# Where the user's own configuration is. All others of git's variables say what a hook, an alias or
# a script was doing when it started us.
OWN = {
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_EXEC_PATH",
    "GIT_CEILING_DIRECTORIES",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM",
}
SECONDS = 20
LISTING_SECONDS = 120
FILTERS = r"^filter\..*\.(clean|smudge|process|required)$"
NO_REPOSITORY = "fatal: not a git repository (or any"


class GitFailed(Exception):
    """Git is missing, refused, failed or took too long; the message says which."""


class NoRepository(GitFailed):
    """The folder is in no repository."""


def git(root: Path, *words: str, seconds: float = SECONDS) -> bytes:
    """Return what git prints about a folder.

    Raises:
        NoRepository: the folder is in none.
        GitFailed: git is missing, refuses, fails or takes too long.
    """
    try:
        done = subprocess.run(  # noqa: S603 - the words are ours
            (PROGRAM, *HARDENED, "-C", str(root), *words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
            env=environment(os.environ),
        )
    except FileNotFoundError as error:
        raise GitFailed("git is not installed here") from error
    except OSError as error:
        raise GitFailed(f"git cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise GitFailed(f"git took longer than {duration_text(seconds)}") from error
    if done.returncode != 0:
        raise _failed(done.stderr.decode(errors="replace"))
    return done.stdout


def tried(root: Path, *words: str) -> bytes | None:
    """Return what git prints; None if it fails, is missing or takes too long."""
    try:
        return git(root, *words)
    except GitFailed:
        return None


def without_filters(root: Path) -> tuple[str, ...]:
    """Return options of git that turn off the filters in a repository's own configuration.

    Comparing a file with the index would start them. Those that the user configured stay.
    """
    named = tried(
        root, "config", "--local", "--includes", "-z", "--name-only", "--get-regexp", FILTERS
    )
    keys = sorted({key for key in (named or b"").decode(errors="replace").split("\0") if key})
    values = ((key, "false" if key.endswith("required") else "") for key in keys)
    return tuple(word for key, value in values for word in ("-c", f"{key}={value}"))


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for git: without those that name another repository, or its programs."""
    kept = {
        name: value
        for name, value in variables.items()
        if not name.startswith("GIT_") or name in OWN
    }
    # A partial clone would fetch what it lacks, by the programs of its configuration.
    offline = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
    return {**kept, **offline, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}


def _failed(output: str) -> GitFailed:
    lines = [line for line in output.splitlines() if line.startswith("fatal: ")]
    if output.startswith(NO_REPOSITORY):
        return NoRepository("the folder is in no repository")
    reason = lines[-1].removeprefix("fatal: ") if lines else output.strip() or "it said nothing"
    return GitFailed(f"git failed: {re.sub(r'[^ -~]+', ' ', reason)[:300]}")
