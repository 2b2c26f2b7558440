"""`forge up` in the background: its options and lock, how it stops, and what a killed one left."""

import fcntl
import os
import signal
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from forge_client import running
from forge_client.errors import ClientError, ExitCode
from forge_client.running import Running
from forge_client.up import child_process
from forge_client.up.child_process import speak_to
from forge_client.up.folder_access import close, made
from forge_client.up.postgres import Postgres, require_usable

FILE = "lock"
HOST = "127.0.0.1"
# struct flock of fcntl(2): kind, whence, start, length, process.
FLOCK = struct.Struct("hhqqi0q")
LOOK_S, BEGUN_LOOK_S = 0.05, 0.01
START_S = 180.0
STOP_S = 180.0
CHILD_STOP_S = 120.0
KILL_S = 10.0


@dataclass(frozen=True)
class UpOptions:
    """The options of a `forge up`.

    `cpus` and `memory_mb` are for each worker; None shares the machine among them. `port` is the
    server's; None means the previous one, or else a free one. `gang_network` is a setting of the
    workers; None means its default.
    """

    dir: Path
    workers: int = 1
    cpus: float | None = None
    memory_mb: int | None = None
    port: int | None = None
    gang_network: str | None = None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; forked children do not hold it.

    Raises:
        ClientError: another process holds it.
    """
    descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise already_running(folder, holder(folder) or 0) from error
        yield
    finally:
        os.close(descriptor)


def refuse_taken(port: int | None) -> None:
    """Check that nothing answers on a port; `ClientError` if something does."""
    if port and is_taken(port):
        raise port_taken(port)


def port_taken(port: int) -> ClientError:
    """Return the error for a port that is in use."""
    return ClientError(
        f"something else already answers on port {port} of this machine",
        hint="use another --port, or omit it to get a free one",
        code="port_taken",
    )


def is_taken(port: int) -> bool:
    """Tell whether something answers on a port of this machine."""
    with socket.socket() as knocking:
        knocking.settimeout(1)
        return knocking.connect_ex((HOST, port)) == 0


def already_running(folder: Path, pid: int) -> ClientError:
    """Return the error for a folder that another process holds."""
    return ClientError(
        f"a `forge up` is already running in {folder}" + (f", process {pid}" * bool(pid)),
        hint="use it as it is, end it with `forge down`, or name another --dir",
        code="already_running",
    )


def holder(folder: Path) -> int | None:
    """Return the pid of the process that holds the folder's lock; None if it is free.

    The pid is 0 if the process is not visible: on another machine, or outside this container.
    """
    try:
        descriptor = os.open(folder / FILE, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        # Query the lock without taking it: taking it even briefly would make a new `forge up` fail.
        query = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, query))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else max(0, pid)


def detached(plan: UpOptions) -> int:
    """Continue in a process that outlives this one; return as `os.fork` does.

    Raises:
        ClientError: one is already running there, or none can be started.
    """
    require_usable(plan.dir)
    if (pid := holder(plan.dir)) is not None:
        raise already_running(plan.dir, pid)
    made(plan.dir)
    close(plan.dir)
    log = _log(plan)
    log.parent.mkdir(mode=0o700, exist_ok=True)
    child = os.fork()
    if child == 0:
        os.setsid()
        speak_to(log, "wb")
    return child


def await_up(plan: UpOptions, child: int) -> Running:
    """Wait until the detached process is up; `ClientError` if it did not come up."""
    deadline = time.monotonic() + START_S
    try:
        while time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                raise _not_up(_log(plan), os.waitstatus_to_exitcode(status))
            with suppress(ClientError):
                if (begun := running.find(plan.dir)).pid == child:
                    return begun
            time.sleep(BEGUN_LOOK_S)
    except KeyboardInterrupt:
        # Nobody was told of it.
        os.kill(child, signal.SIGTERM)
        raise
    os.kill(child, signal.SIGTERM)
    raise _not_up(_log(plan), ExitCode.FAILED)


def _log(plan: UpOptions) -> Path:
    return plan.dir / "logs" / "up.log"


def _not_up(log: Path, status: int) -> ClientError:
    output = log.read_text("utf-8", errors="replace").strip()
    # What it was told to say last is an error with a hint of its own, as of any command.
    _, said, error = output.rpartition("error: ")
    message, _, hint = error.partition("\n  hint: ")
    return ClientError(
        f"it did not come up: {message}" if said else f"it did not come up:\n{output}",
        hint=f"{hint}; its output is in {log}" if hint else f"its output is in {log}",
        code="up_failed",
        exit_code=status,
    )


def stop(folder: Path, *, drain: bool) -> None:
    """Stop the `forge up` of a folder, or the remains of a killed one, and wait for its end.

    Raises:
        ClientError: none is running there, or it does not stop.
    """
    pid = holder(folder)
    if pid is None:
        _stop_leftovers(folder, drain=drain)
        return
    if not pid:
        raise _unstoppable(folder, "out of reach", "end it on its own machine or in its container")
    os.kill(pid, signal.SIGINT if drain else signal.SIGTERM)
    deadline = float("inf") if drain else time.monotonic() + STOP_S
    while holder(folder) == pid:
        if time.monotonic() > deadline:
            raise _unstoppable(
                folder,
                f"process {pid}",
                f"its output may say why; `kill -9 {pid}` ends it, and loses no job",
            )
        time.sleep(LOOK_S)


def _stop_leftovers(folder: Path, *, drain: bool) -> None:
    if (folder / FILE).exists():
        with locked(folder):
            if stop_children(folder, drain=drain):
                with suppress(ClientError):
                    running.find(folder).withdraw()
                return
    raise ClientError(
        f"no `forge up` is running in {folder}",
        hint="name its folder with --dir",
        code="not_running",
    )


def _unstoppable(folder: Path, which: str, hint: str) -> ClientError:
    return ClientError(
        f"the `forge up` of {folder}, {which}, does not stop", hint=hint, code="does_not_stop"
    )


def kill_children(folder: Path) -> None:
    """Kill its remaining children; the next worker finds their jobs."""
    _kill([*_workers(folder), *_servers(folder)])


def stop_children(folder: Path, *, drain: bool) -> bool:
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
    _stop(workers, signal.SIGINT if drain else signal.SIGTERM, None if drain else CHILD_STOP_S)
    _stop(servers, signal.SIGTERM, CHILD_STOP_S)
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
