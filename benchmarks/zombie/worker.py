"""A worker process of any queue, with all that runs below it: paused, woken, killed."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
END_S = 10.0


class Worker:
    """Started in a session of its own; what it says goes to a file."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], said: Path) -> None:
        self._said = said
        self._heard = 0
        self._paused: list[psutil.Process] = []
        with said.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def has(self, pid: int) -> bool:
        """Tell whether a process is this worker's."""
        return pid in {process.pid for process in self._all()}

    def pause(self) -> None:
        """Stop it and everything below it, as a host that is frozen stops them."""
        self._heard = self._said.stat().st_size
        self._paused = self._all()
        for process in self._paused:
            process.suspend()

    def wake(self) -> None:
        """Let it go on; the job first, so that its end is there when the worker looks."""
        for process in reversed(self._paused):
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def said_since(self) -> list[str]:
        """Return what it logged since it was paused."""
        return self._said.read_bytes()[self._heard :].decode(errors="replace").splitlines()

    def terminate(self) -> None:
        """Ask it to leave."""
        self._process.terminate()

    def kill(self) -> None:
        """End it and everything below it at once, as a power cut would."""
        found = self._all()
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(found, END_S)
        self._process.wait(END_S)

    def _all(self) -> list[psutil.Process]:
        if not self.alive:
            return []
        one = psutil.Process(self._process.pid)
        return [one, *one.children(recursive=True)]
