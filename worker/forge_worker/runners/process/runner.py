"""Run jobs as processes of this machine, each below a shim that outlives the agent.

Such a job is not isolated: it has the agent's network, and, unless it has a user of its own, the
agent's user and files.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import pwd
import secrets
import signal
import sys
import threading
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import psutil

from forge_worker.attempt_folders import short_path
from forge_worker.runners.process.child import Order
from forge_worker.runners.process.confinement import CpuTable, confinement_of, parents
from forge_worker.runners.process.descendants import MIB, JobUse, descendants, use_below
from forge_worker.runners.process.door import entered
from forge_worker.runners.process.notice import catches
from forge_worker.runners.process.shared_memory import SharedMemory
from forge_worker.runners.process.shim import BLANK, LENGTH
from forge_worker.runners.process.shims import MARK, ShimLine, Shims, base_environment, title
from forge_worker.runners.runner import (
    Exit,
    JobPaths,
    Leftover,
    Mount,
    RunSpec,
    StartFailed,
    belongs,
    visible,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from forge_worker.runners.owners import JobUser
    from forge_worker.runners.runner import RunSpec


# Of the job's memory: what Ray's own default is of a machine's. Ray refuses less than 75 MiB.
SHARE, LEAST_BYTES = 0.3, 80 << 20
# Whoever sets one of these has a cluster of their own.
THEIRS = {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}
UNNAMED = "forge"
END_PATIENCE_S = 60.0
REAP_PATIENCE_S = 30.0
# For the kill after a grace that must be over in time.
MARGIN_S = 3.0


def private_ray(spec: RunSpec, tmp: str) -> dict[str, str]:
    """Return the variables for a job whose temporary files are in `tmp`."""
    variables = {
        "RAY_TMPDIR": tmp,
        "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": str(store_bytes(spec.memory_mb)),
    }
    if THEIRS & (spec.env.keys() | spec.secrets.keys()):
        return variables
    return {**variables, "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def store_bytes(memory_mb: int) -> int:
    """Return how much of a job's memory, in MiB, Ray's object store may have."""
    return max(LEAST_BYTES, int((memory_mb << 20) * SHARE))


class ProcessHandle:
    """A job below its shim, which has said that it runs; `over` is called once it has ended."""

    remembers = True

    def __init__(self, line: ShimLine, name: str, grace_s: float, over: Callable[[], None]) -> None:
        self._line = line
        self._name = name
        self._grace_s = grace_s
        self._over = over
        self.pid = int(line.greeting["pid"])
        self._exit: Exit | None = None
        self._used: JobUse | None = None
        # Held by the thread that waits for the shim's report.
        self._lock = threading.Lock()

    def wait(self, timeout: float, wake: int | None = None) -> Exit | None:
        """Return the exit, or None if the job still runs after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        if self._exit is None and self._lock.acquire(timeout=timeout):
            try:
                self._look(deadline - time.monotonic(), wake)
            finally:
                self._lock.release()
        return self._exit

    def signal(self, signum: int, notice_s: float = 0.0) -> None:
        """Have the job stop; as in `Handle`."""
        self._line.order(f"signal {int(signum)} {notice_s:.3f}")

    def catches(self, signum: int) -> bool | None:
        """Return whether a process of the job has a handler for a signal; as in `Handle`."""
        return catches(descendants(self._line.shim), signum)

    def stop(self) -> None:
        """Have the job stop within its grace, and wait for the end; as in `Handle`."""
        self._line.order("stop")
        self._see_end(self._grace_s + END_PATIENCE_S)

    def used(self) -> JobUse | None:
        """Return what the job has used so far, or in total after its end."""
        return self._used or use_below(self._line.shim)

    def remove(self) -> None:
        """Kill what is still running. May be repeated."""
        self._line.order("kill")
        self._see_end(END_PATIENCE_S)

    def _see_end(self, patience_s: float) -> None:
        while self.wait(patience_s) is None:
            self._line.kill()

    def _look(self, seconds: float, wake: int | None) -> None:
        """Wait for the shim's report, unless another thread has read it."""
        if self._exit is None and self._line.wait(seconds, wake):
            self._exit = self._ended()
            self._line.close()
            self._over()

    def _ended(self) -> Exit:
        message = self._line.read()
        if "code" in message:
            self._used = JobUse(message["cpu_seconds"], 0.0, message["peak_bytes"] / MIB)
            more = {name: message[name] for name in ("at_ns", "void") if name in message}
            return Exit(message["code"], message["oom"], detail=message["detail"], **more)
        kill_session(self.pid)
        confinement_of(self._name).end()
        return Exit(code=None, detail="the job's supervising process was killed")


class ProcessRunner:
    """Runs jobs as processes."""

    kind: ClassVar[str] = "process"
    on_host: ClassVar[bool] = True

    def __init__(self, user: JobUser | None = None) -> None:
        self._user = user
        self._shared = None if user is None else SharedMemory(user.uid)
        self._alone_s, self._strict = 0.0, False
        self._cpu_table = CpuTable()
        self._shims = Shims()
        # The shims of this agent's jobs.
        self._own: set[int] = set()

    def outlive(self, seconds: float, *, strict: bool) -> None:
        """Let jobs that start from now on run this long without an agent, which none does at first.

        Then a job gets its grace; if `strict`, it gets it before.
        """
        self._alone_s, self._strict = seconds, strict

    def paths(self, spec: RunSpec) -> JobPaths:
        """Return the folders as the job sees them: the host's own paths."""
        return JobPaths(*spec.folders)

    def place(self, mount: Mount) -> Path:
        """Return the path of a mounted folder in the job: the host's own path."""
        return mount.source

    def foundation(self, spec: RunSpec) -> str:  # noqa: ARG002  the same for every job
        """Return the identity of the job's Python: the worker's own."""
        return f"{sys.executable} {sys.version} {platform.machine()}"

    def start(self, spec: RunSpec) -> ProcessHandle:
        """Start the job; `StartFailed` if this machine could not start it."""
        cpu_set = () if self._has_quotas else self._cpu_table.take(spec.cpus)
        if self._shared is not None:
            self._shared.began()
        try:
            line = self._started(spec, cpu_set)
            self._shims.prepare()
        except OSError as error:
            self._over(cpu_set)
            raise StartFailed(
                f"the process of {spec.name} did not start: {error}",
                hint="look at the worker's limits on processes, memory and open files, and at the"
                f" end of {spec.log_path}",
            ) from error
        return self._handle(line, spec.name, spec.grace_s, cpu_set)

    @cached_property
    def _has_quotas(self) -> bool:
        """Whether control groups limit CPUs, which they do better than affinity."""
        return "cpu" in parents()

    def _started(self, spec: RunSpec, cpu_set: tuple[int, ...]) -> ShimLine:
        alone_s = self._alone_s - (spec.grace_s + MARGIN_S if self._strict else 0.0)
        order = _order(spec, cpu_set, max(0.0, alone_s), self._user)
        if self._user is not None:
            self._user.let_in(spec)
        spec.log_path.open("ab").close()
        line = self._shims.take()
        with contextlib.suppress(OSError):  # the shim died
            line.send(order)
            line.greeting = line.read()
        if "pid" not in line.greeting:
            line.kill()
            line.close()
            confinement_of(spec.name).end()
            raise OSError("its supervising process ended")
        return line

    def _handle(
        self, line: ShimLine, name: str, grace_s: float, cpu_set: tuple[int, ...]
    ) -> ProcessHandle:
        def over() -> None:
            self._own.discard(line.shim)
            self._over(cpu_set)

        self._own.add(line.shim)
        return ProcessHandle(line, name, grace_s, over)

    def _over(self, cpu_set: tuple[int, ...]) -> None:
        self._cpu_table.give_back(cpu_set)
        if self._shared is not None:
            self._shared.ended()

    def leftovers(self, folder: str) -> list[Leftover]:
        """Return the jobs whose shim belongs to this worker's folder and has lost its agent."""
        handles = (_leftover(shim) for shim in _marked() if shim["pid"] not in self._own)
        return [left for left in handles if left and belongs(left, folder)]

    def adopt(self, leftover: Leftover, log_path: Path, grace_s: float) -> ProcessHandle | None:
        """Return the job's handle; None if it has ended, or its shim is stopping it."""
        try:
            line = ShimLine(entered(log_path.parent))
        except OSError:
            return None
        if "pid" not in line.greeting:
            line.close()
            return None
        cpu_set = tuple(line.greeting["cpu_set"])
        self._cpu_table.take_again(cpu_set)
        if self._shared is not None:
            self._shared.began(float(leftover.id.partition(":")[2]))
        return self._handle(line, leftover.name, grace_s, cpu_set)

    def reap(self, leftover: Leftover) -> None:
        """Make the shim kill the job at once, and wait until both are gone."""
        pid, _, created = leftover.id.partition(":")
        with contextlib.suppress(psutil.NoSuchProcess):
            shim = psutil.Process(int(pid))
            if str(shim.create_time()) != created:
                return
            shim.send_signal(signal.SIGQUIT)
            try:
                shim.wait(REAP_PATIENCE_S)
            except psutil.TimeoutExpired:
                for process in [*shim.children(recursive=True), shim]:
                    process.kill()
                confinement_of(leftover.name).end()


def kill_session(leader: int) -> None:
    """Kill every process of a job whose shim can no longer do it."""
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)


def kill_remains(variable: str, value: str) -> None:
    """Kill every process whose environment has a variable that only one attempt was given.

    What had been below a shim that was killed is found by nothing else.
    """
    any_left = True
    until = time.monotonic() + REAP_PATIENCE_S
    while any_left and time.monotonic() < until:
        any_left = False
        for process in psutil.process_iter(["environ"]):
            if (process.info["environ"] or {}).get(variable) == value:
                any_left = True
                with contextlib.suppress(psutil.Error):
                    process.kill()


def _order(spec: RunSpec, cpu_set: tuple[int, ...], alone_s: float, user: JobUser | None) -> bytes:
    gpus = visible(spec.gpu_uuids, spec.gpu_vendor)
    order = Order(
        command=list(spec.command),
        env=_environment(spec, _of_user(spec, user)) | gpus,
        cwd=str(spec.work_dir.absolute()),
        log=str(spec.log_path.absolute()),
        memory_bytes=spec.memory_mb << 20,
        grace_s=spec.grace_s,
        title=title(spec),
        cpus=spec.cpus,
        cpu_set=list(cpu_set),
        alone_s=alone_s,
        user=[user.uid, user.gid, *user.groups] if user else [],
    )
    packed = json.dumps(order._asdict()).encode()
    return LENGTH.pack(len(packed)) + packed


def _of_user(spec: RunSpec, user: JobUser | None) -> dict[str, str]:
    """Return the variables that depend on the job and its user."""
    name = _user_name(os.geteuid() if user is None else user.uid)
    home = {} if user is None else {"HOME": str(spec.work_dir.absolute())}
    tmp: dict[str, str] = {}
    if spec.tmp_dir is not None:
        place = str(short_path(spec.tmp_dir.absolute()))
        tmp = {"TMPDIR": place, **private_ray(spec, place)}
    return {**home, **tmp, "USER": name, "LOGNAME": name}


def _environment(spec: RunSpec, usual: dict[str, str]) -> dict[str, str]:
    env = {**base_environment(), **usual, **spec.env, **spec.secrets}
    path = {"PATH": ":".join([*map(str, spec.bin_dirs), env["PATH"]])}
    if spec.python_dirs:
        own = [given] if (given := env.get("PYTHONPATH")) else []
        path["PYTHONPATH"] = ":".join([*own, *map(str, spec.python_dirs)])
    return env | path


def _marked() -> Iterator[dict[str, Any]]:
    """Yield what may be shims. psutil would take ten times as long to look at all processes."""
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            with open(f"/proc/{pid}/cmdline", "rb") as words:  # noqa: PTH123 - there may be thousands
                marked = MARK.encode() in words.read()
            if marked:
                yield psutil.Process(pid).as_dict(["pid", "create_time", "cmdline"])


def _leftover(info: dict[str, Any]) -> Leftover | None:
    words = info["cmdline"] or []
    if MARK not in words[6:7] or BLANK in words[7:]:
        return None
    labels = dict(word.partition("=")[::2] for word in words[8:] if word)
    return Leftover(f"{info['pid']}:{info['create_time']}", words[7], labels)


def _user_name(uid: int) -> str:
    """Return the name of a user of this machine; a usual one for a number without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return UNNAMED
