"""One process of the bed: started, killed, paused, and restarted by a supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from threading import RLock
from typing import IO, TYPE_CHECKING

import psutil
from support.warm.process import started

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KEPT_LOGS = 4
REAP_S = 20.0


@dataclass
class Member:
    """A process and its command; `left` says that it must not be started for now."""

    name: str
    command: list[str]
    environment: dict[str, str]
    logs: Path
    place: Path | None = None
    also: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    left: bool = False
    starts: int = 0
    lock: RLock = field(default_factory=RLock)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def log(self) -> Path:
        return self.logs / f"{self.name}-{self.starts}.log"

    def start(self) -> None:
        """Start it, unless it is running or must not be started."""
        with self.lock:
            if self.running or self.left:
                return
            self.starts += 1
            (self.logs / f"{self.name}-{self.starts - KEPT_LOGS}.log").unlink(missing_ok=True)
            with self.log.open("wb") as log:
                self.process = self._begun({**os.environ, **self.environment, **self.also}, log)

    def _begun(self, environment: dict[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        python, option, *words = self.command
        if (python, option) == (sys.executable, "-m"):
            return started(words[0], words[1:], environment, log)
        return subprocess.Popen(
            self.command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def leave_alone(self) -> None:
        """Keep it from being started until `resume`."""
        with self.lock:
            self.left = True

    def resume(self) -> None:
        """Allow it to start again, and continue it if it was paused."""
        with self.lock:
            self.left = False
            self.send(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            if self.process is not None and self.running:
                self.process.send_signal(number)

    def kill(self) -> None:
        """Kill it as a power cut would."""
        with self.lock:
            if self.process is not None:
                self.process.kill()
                self.process.wait(REAP_S)

    def ended(self, patience_s: float) -> int | None:
        """Return its exit code, or None while it is running."""
        if self.process is None:
            return 0
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(patience_s)
        return None

    def family(self) -> list[psutil.Process]:
        """Return the process and all its descendants; none if it is not running."""
        if self.process is None or not self.running:
            return []
        with suppress(psutil.NoSuchProcess):
            own = psutil.Process(self.process.pid)
            return [own, *own.children(recursive=True)]
        return []


def said(environment: Mapping[str, object]) -> dict[str, str]:
    """Return settings, given in lower case, as FORGE_* variables."""
    return {f"FORGE_{name.upper()}": str(value) for name, value in environment.items()}
