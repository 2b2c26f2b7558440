"""The processes that a killed `forge up` left running."""

import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from forge_client.up import child_process
from forge_client.up.postgres import Postgres

STOP_S = 120.0
KILL_S = 10.0


def kill(folder: Path) -> None:
    """Kill its remaining children; the next worker finds their jobs."""
    _kill([*_workers(folder), *_servers(folder)])


def stop(folder: Path, *, drain: bool) -> bool:
    """Stop the remaining processes in order, as `forge up` would; return whether there were any.

    Args:
        folder: the folder of the `forge up`; the caller holds its lock.
        drain: whether running jobs may finish first.

    Raises:
        ClientError: Postgres does not stop.
    """
    workers, servers = _workers(folder), _servers(folder)
    data = folder / "postgres"
    if not (workers or servers or (data / "postmaster.pid").exists()):
        return False
    _stop(workers, signal.SIGINT if drain else signal.SIGTERM, None if drain else STOP_S)
    _stop(servers, signal.SIGTERM, STOP_S)
    Postgres(data).stop()
    return True


def _workers(folder: Path) -> list[psutil.Process]:
    return _noted(folder.glob(f"workers/*/{child_process.PID_FILE}"))


def _servers(folder: Path) -> list[psutil.Process]:
    return _noted([folder / "server" / child_process.PID_FILE])


def _noted(files: Iterable[Path]) -> list[psutil.Process]:
    return [process for file in files if (process := child_process.read_process(file))]


def _stop(processes: Sequence[psutil.Process], signum: int, timeout_s: float | None) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(signum)
    _, left = psutil.wait_procs(processes, timeout_s)
    _kill(left)


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, KILL_S)
