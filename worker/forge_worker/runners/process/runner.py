"""Run jobs as processes of this machine, each below a shim that outlives the agent.

Such a job is not isolated: it has the agent's user, files and network.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import psutil

from forge_worker.runners.process.child import Order
from forge_worker.runners.process.confinement import CpuTable, confinement_of, parents
from forge_worker.runners.process.door import entered
from forge_worker.runners.process.shim import BLANK, LENGTH
from forge_worker.runners.process.shims import MARK, Shims, base_environment, title
from forge_worker.runners.runner import (
    Exit,
    JobPaths,
    Leftover,
    Mount,
    Own,
    RunSpec,
    StartFailed,
    belongs,
    nobodys,
    visible,
)
from forge_worker.runners.use import MIB, JobUse, use_below

MILLISECONDS = 1000
START_PATIENCE_S = 60.0
END_PATIENCE_S = 60.0
REAP_PATIENCE_S = 30.0


class ProcessHandle:
    """A job below its shim."""

    def __init__(
        self,
        shim: subprocess.Popen[bytes] | psutil.Process,
        agent: socket.socket,
        cpu_table: CpuTable,
        *,
        name: str,
        grace_s: float,
    ) -> None:
        self._shim = shim
        self._agent = agent
        self._cpu_table = cpu_table
        self._cpu_set: tuple[int, ...] = ()
        self._name = name
        self._grace_s = grace_s
        self.pid = 0
        self._exit: Exit | None = None
        self._used: JobUse | None = None
        # Held by the thread that waits for the shim's report.
        self._lock = threading.Lock()
        self._reports = agent.makefile("rb")

    def start(self, spec: RunSpec, alone_s: float) -> None:
        """Have the shim start the job, and let it run `alone_s` seconds without an agent.

        Raises:
            StartFailed: this machine could not start it.
        """
        # A control group's quota limits CPUs better than affinity.
        self._cpu_set = () if "cpu" in parents() else self._cpu_table.take(spec.cpus)
        said = self._greeting(_order(spec, self._cpu_set, alone_s))
        if "pid" not in said:
            self._shim.kill()
            self._shim.wait()
            confinement_of(self._name).end()
            self._close()
            raise StartFailed(
                f"the process of {self._name} did not start",
                hint=f"look for the reason at the end of {spec.log_path}",
            )
        self.pid = int(said["pid"])

    def go_on(self) -> bool:
        """Continue a job that an earlier agent started; False if it has ended."""
        said = self._greeting(b"")
        if "pid" not in said:
            self._close()
            return False
        self.pid, self._cpu_set = int(said["pid"]), tuple(said["cpu_set"])
        self._cpu_table.take_again(self._cpu_set)
        return True

    def wait(self, timeout: float) -> Exit | None:
        """Return the exit, or None if the job still runs after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        if self._exit is None and self._lock.acquire(timeout=timeout):
            try:
                self._look(deadline - time.monotonic())
            finally:
                self._lock.release()
        return self._exit

    def signal(self, signum: int) -> None:
        """Send a signal to the job's main process, if it still runs."""
        self._order(f"signal {int(signum)}")

    def stop(self) -> None:
        """Send SIGTERM to the main process, SIGKILL to all after the grace; wait for the end."""
        self._order("stop")
        self._see_end(self._grace_s + END_PATIENCE_S)

    def used(self) -> JobUse | None:
        """Return what the job has used so far, or in total after its end."""
        return self._used or use_below(self._shim.pid)

    def remove(self) -> None:
        """Kill what is still running. May be repeated."""
        self._order("kill")
        self._see_end(END_PATIENCE_S)

    def _see_end(self, patience_s: float) -> None:
        while self.wait(patience_s) is None:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just left by itself
                self._shim.kill()

    def _greeting(self, order: bytes) -> dict[str, Any]:
        """Return the shim's first words; none if it died, or does not answer in time."""
        self._agent.settimeout(START_PATIENCE_S)
        try:
            self._agent.sendall(order)
            said = self._read()
            self._agent.settimeout(None)
        except OSError:
            return {}
        return said

    def _look(self, seconds: float) -> None:
        """Wait for the shim's report, unless another thread has read it."""
        if self._exit is None:
            poll = select.poll()
            poll.register(self._agent, select.POLLIN)
            if poll.poll(max(0.0, seconds) * MILLISECONDS):
                self._exit = self._ended()
                self._close()

    def _ended(self) -> Exit:
        said = self._read()
        self._shim.wait()
        if "code" in said:
            self._used = JobUse(said["cpu_seconds"], 0.0, said["peak_bytes"] / MIB)
            return Exit(said["code"], oom_killed=said["oom"], detail=said["detail"])
        kill_session(self.pid)
        confinement_of(self._name).end()
        return Exit(code=None, detail="the job's supervising process was killed")

    def _read(self) -> dict[str, Any]:
        try:
            line = self._reports.readline()
        except ConnectionError:
            line = b""
        return json.loads(line) if line.endswith(b"\n") else {}

    def _order(self, words: str) -> None:
        with contextlib.suppress(OSError):  # the shim is gone, and the job with it
            self._agent.sendall(f"{words}\n".encode())

    def _close(self) -> None:
        self._cpu_table.give_back(self._cpu_set)
        self._reports.close()
        self._agent.close()


class ProcessRunner:
    """Runs jobs as processes; after the first, if `ahead`, the next job's shim is started early.

    Without an agent, a job runs on for `alone_s` seconds.
    """

    kind: ClassVar[str] = "process"

    def __init__(self, *, ahead: bool = False, alone_s: float = 0.0) -> None:
        self._alone_s = alone_s
        self._cpu_table = CpuTable()
        self._shims = Shims(ahead=ahead)

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
        """Start the job.

        Raises:
            StartFailed: this machine could not start it.
        """
        try:
            shim, agent = self._shims.take(spec)
        except OSError as error:
            raise StartFailed(
                f"the process of {spec.name} did not start: {error}",
                hint="look at the worker's limits on processes, memory and open files",
            ) from error
        try:
            handle = ProcessHandle(
                shim, agent, self._cpu_table, name=spec.name, grace_s=spec.grace_s
            )
            handle.start(spec, self._alone_s)
            return handle
        finally:
            self._shims.prepare()

    def leftovers(self, folder: str, own: Own = nobodys) -> list[Leftover]:
        """Return the jobs whose shim belongs to this worker's folder and has lost its agent."""
        agent = os.getpid()
        found = (
            _leftover(process.info)
            for process in psutil.process_iter(["pid", "ppid", "create_time", "cmdline"])
            if process.info["ppid"] != agent
        )
        return [left for left in found if left and belongs(left, folder, own)]

    def adopt(self, leftover: Leftover, log_path: Path, grace_s: float) -> ProcessHandle | None:
        """Return the job's handle; None if it has ended, or its shim is stopping it."""
        try:
            shim = psutil.Process(int(leftover.id.partition(":")[0]))
            agent = entered(log_path.parent)
        except (OSError, psutil.NoSuchProcess):
            return None
        handle = ProcessHandle(shim, agent, self._cpu_table, name=leftover.name, grace_s=grace_s)
        return handle if handle.go_on() else None

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


def _order(spec: RunSpec, cpu_set: tuple[int, ...], alone_s: float) -> bytes:
    gpus = visible(spec.gpu_uuids, spec.gpu_vendor)
    order = Order(
        command=list(spec.command),
        env=_environment(spec) | gpus,
        cwd=str(spec.work_dir.absolute()),
        log=str(spec.log_path.absolute()),
        memory_bytes=spec.memory_mb << 20,
        grace_s=spec.grace_s,
        title=title(spec),
        cpus=spec.cpus,
        cpu_set=list(cpu_set),
        alone_s=alone_s,
    )
    packed = json.dumps(order._asdict()).encode()
    return LENGTH.pack(len(packed)) + packed


def _environment(spec: RunSpec) -> dict[str, str]:
    env = {**base_environment(), **spec.env, **spec.secrets}
    path = {"PATH": ":".join([*map(str, spec.bin_dirs), env["PATH"]])}
    if spec.python_dirs:
        own = [said] if (said := env.get("PYTHONPATH")) else []
        path["PYTHONPATH"] = ":".join([*own, *map(str, spec.python_dirs)])
    return env | path


def _leftover(info: dict[str, Any]) -> Leftover | None:
    words = info["cmdline"] or []
    if MARK not in words[6:7] or BLANK in words[7:]:
        return None
    labels = dict(word.partition("=")[::2] for word in words[8:] if word)
    return Leftover(f"{info['pid']}:{info['create_time']}", words[7], labels)
