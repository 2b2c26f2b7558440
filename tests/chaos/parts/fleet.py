"""The processes of a run: workers of several kinds, servers, sweepers, and their supervisor."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

import psutil
from chaos.options import HEARTBEAT_S, TTL_S
from chaos.parts.member import Member, said
from chaos.parts.object_store import AWS
from forge_worker.runners.process.runner import ProcessRunner
from forge_worker.worker_folder import known_id
from support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The first workers are one of each kind; the others follow the order of `REST`.
FIRST = ("container", "http", "pooled", "small disk", "direct", "http", "direct", "broken")
REST = ("direct", "http", "direct", "container", "pooled", "direct", "http", "direct")
SMALL_DISK_MB = 64
# The shell of the broken worker: for some minutes all jobs fail there, and for some none.
BROKEN_S = 240
BROKEN = f"""#!/bin/sh
[ $(($(date +%s) / {BROKEN_S} % 2)) = 0 ] && exec /bin/sh "$@"
echo "the device does not answer"; exit 3
"""
WORKER = [sys.executable, "-m", "forge_worker.main"]
WATCH_S = 0.5
RESTART_S, RESTART_AT_MOST_S, STEADY_S = 1.5, 12.0, 10.0
LEAVE_S = 60.0

PACE = {"heartbeat_s": HEARTBEAT_S, "lease_ttl_s": TTL_S}
LENDS = {
    **PACE,
    "poll_s": 2,
    "log_flush_s": 1,
    "store_patience_s": 25,
    "reconnect_limit_s": 2,
    "crash_limit_s": 4,
    "cpus": 1,
    "memory_mb": 1024,
    "disk_mb": 800,
    "disk_floor_mb": 8,
    "sample_s": 4,
    "cooldown_s": 2,
    "gpus": "none",
    "runner": "process",
    "allow_processes": True,
    "labels": "place=process",
    "keep_caches": False,
}


def kind_of(number: int) -> str:
    """Return the kind of the worker with this number."""
    if number < len(FIRST):
        return FIRST[number]
    return REST[(number - len(FIRST)) % len(REST)]


@dataclass
class Worker(Member):
    """A worker of some kind; `queue_id` identifies the queue that it works for."""

    kind: str = "direct"
    queue_id: str = ""

    def family(self) -> list[psutil.Process]:
        """Return its processes, and those of jobs that it continues after an earlier agent."""
        found = super().family()
        folder = known_id(self.place) if self.place else None
        for left in ProcessRunner().leftovers(str(folder)) if folder else ():
            with suppress(psutil.NoSuchProcess):
                shim = psutil.Process(int(left.id.partition(":")[0]))
                found += [shim, *shim.children(recursive=True)]
        return found

    def says(self, word: str) -> bool:
        """Tell whether the log since its last start contains a word."""
        return word in self.log.read_text(encoding="utf-8", errors="replace")

    def recover(self) -> int:
        """Clean up after it exited, and return the exit code."""
        with (self.logs / f"{self.name}-recovery.log").open("wb") as log:
            return subprocess.run(
                [*self.command, "--recover"],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=LEAVE_S,
                check=False,
            ).returncode

    def enter(self, words: list[str]) -> None:
        """Run it through a wrapper command."""
        self.command = [*words, *self.command]

    @property
    def labels(self) -> list[str]:
        """Return its containers' labels; a worker of another queue may have the same name."""
        name = self.environment["FORGE_WORKER_NAME"]
        return [f"forge.worker={name}", f"forge.queue={self.queue_id}"]


def worker(name: str, kind: str, worker_name: str, root: Path, **settings: object) -> Worker:
    """Describe a worker, whose name in the queue differs; settings as in FORGE_*."""
    place = root / "workers" / name
    place.mkdir(parents=True)
    own = {"worker_name": worker_name, "worker_dir": place, "spot": "none"}
    environment = {**AWS, **said({**LENDS, **own, **settings})}
    # Tells the database whose connection ended a lease.
    environment |= {} if kind == "http" else {"PGAPPNAME": worker_name}
    return Worker(name, WORKER, environment, root / "logs", place, kind=kind)


def broken_shell(folder: Path) -> str:
    """Write the shell of a broken worker, and return a PATH on which it comes first."""
    folder.mkdir(exist_ok=True)
    (folder / "sh").write_text(BROKEN, encoding="utf-8")
    (folder / "sh").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def server(number: int, root: Path, **settings: object) -> tuple[Member, int]:
    """Describe a server, and return it with its port."""
    port = free_port()
    command = [sys.executable, "-m", "forge_functions.server", "--port", str(port)]
    environment = {**AWS, **said({**PACE, "long_poll_s": 3, **settings})}
    return _named(Member(f"server-{number}", command, environment, root / "logs")), port


def sweeper(number: int, root: Path, **settings: object) -> Member:
    """Describe a sweeper."""
    command = [sys.executable, "-m", "forge_schema.sweeper.main"]
    own = {"lease_ttl_s": TTL_S, "offline_s": 20, "sweep_s": 1, "health_port": 0}
    environment = said({**own, **settings})
    return _named(Member(f"sweeper-{number}", command, environment, root / "logs"))


def _named(member: Member) -> Member:
    """Name its connections; pooled ones would otherwise keep the name of their previous user."""
    member.environment["PGAPPNAME"] = member.name
    return member


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mount a small disk below a folder, if this user may; tell whether it is mounted."""
    size = f"size={SMALL_DISK_MB}m"
    mounts = ["mount", "-t", "tmpfs", "-o", size, f"forge-{secrets.token_hex(4)}", str(folder)]
    there = os.geteuid() == 0 and subprocess.run(mounts, check=False).returncode == 0
    try:
        yield there
    finally:
        if there:
            subprocess.run(["umount", "-l", str(folder)], check=False)


@dataclass
class Fleet:
    """All processes that are restarted when they exit, as an init system would."""

    members: list[Member]
    restarts: int = 0
    crashes: Counter[str] = field(default_factory=Counter)
    _ending: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, name="init", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        due = dict.fromkeys((member.name for member in self.members), 0.0)
        waits = dict.fromkeys(due, RESTART_S)
        while not self._ending.wait(WATCH_S):
            for member in self.members:
                name, now = member.name, monotonic()
                if member.left or member.running or now < due[name]:
                    continue
                # Wait before restarting one that keeps exiting.
                steady = now - due[name] > STEADY_S
                waits[name] = RESTART_S if steady else min(2 * waits[name], RESTART_AT_MOST_S)
                due[name] = now + waits[name]
                self._start_again(member)

    def _start_again(self, member: Member) -> None:
        self.restarts += member.process is not None
        self._note_crash(member)
        member.start()

    def _note_crash(self, member: Member) -> None:
        """Count an unexpected exit by its last words, unless a start was refused."""
        if member.process is not None and (member.process.returncode or 0) > 0:
            words = member.log.read_text(errors="replace")
            if "Traceback" in words:
                self.crashes[words.strip().rpartition("\n")[2][:200]] += 1

    def end(self) -> None:
        """Stop restarting processes."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(60)

    def kill_all(self) -> None:
        """Kill every process, with all its descendants."""
        self.end()
        for member in self.members:
            for process in member.family():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            member.kill()
