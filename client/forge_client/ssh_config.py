"""The part of ~/.ssh/config by which ssh, and every editor that uses it, finds running jobs."""

from __future__ import annotations

import fcntl
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_state_path

from forge_client import default_paths, tunnel
from forge_client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from forge_schema.model.job import JobStatus

    from forge_client.backend import Backend

# A job of this name cannot take the place of a machine that somebody else means.
SUFFIX = ".forge"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", re.ASCII)
MOST_JOBS = 100
MARK = "# Made by `forge ssh --config`, written again at each connection to a job.\n"


def place() -> Path:
    """Return where the part is kept."""
    return user_state_path("forge") / "ssh_config"


def write(backend: Backend, forge: Sequence[str]) -> list[str]:
    """Write the part with the jobs that run now, and have ~/.ssh/config include it.

    Returns the names by which ssh finds the jobs.

    Raises:
        ClientError: nothing answers.
        OSError: a file cannot be written.
    """
    jobs = backend.jobs("owner:me", states=["running"], count=MOST_JOBS)
    names = _names(jobs)
    blocks = [_block(job, names.get(job.job_id)) for job in jobs]
    text = f"{MARK}{''.join(blocks)}{tunnel.config(forge, also=names.values())}\n"
    place().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with place().with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        default_paths.write_privately(place(), text)
        _include(Path("~/.ssh/config").expanduser())
    return [names.get(job.job_id) or tunnel.host(job.job_id) for job in jobs]


def keep(backend: Backend, forge: Sequence[str]) -> None:
    """Write the part anew if there is one; a connection does not depend on it."""
    if place().exists():
        with suppress(ClientError, OSError):
            write(backend, forge)


def _names(jobs: Iterable[JobStatus]) -> dict[int, str]:
    """Return the jobs whose names are hosts' names and no other job's, newest first."""
    names: dict[int, str] = {}
    for job in jobs:
        name = f"{job.name}{SUFFIX}"
        if NAME.fullmatch(job.name) and name not in names.values():
            names[job.job_id] = name
    return names


def _block(job: JobStatus, name: str | None) -> str:
    """Return the entries of a job: editors offer hosts that are written without wildcards."""
    first = tunnel.host(job.job_id)
    lines = [f"Host {first} {name or ''}".rstrip(), f"  HostName {first}"]
    lines += [f"Host {tunnel.host(job.job_id, rank)}" for rank in range(1, job.nodes)]
    return "".join(f"{line}\n" for line in lines)


def _include(config: Path) -> None:
    """Have a configuration include the part, before everything else in it; only once."""
    line = f'Include "{place()}"\n'
    text = config.read_text(encoding="utf-8") if config.exists() else ""
    if line in text:
        return
    config.parent.mkdir(mode=0o700, exist_ok=True)
    # It may be a link into a folder of one's own settings, which stays one.
    mode = config.stat().st_mode & 0o777 if config.exists() else default_paths.PRIVATE
    default_paths.write_privately(config.resolve(), line + ("\n" if text else "") + text, mode)
