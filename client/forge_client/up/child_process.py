"""A worker or the server of a `forge up` as a child process, and the signals that stop them."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Any, Self

import psutil

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Counts urgency: 1 drain, 2 stop, 3 kill. Ctrl-C adds one, SIGTERM asks for 2 at least."""

    def __init__(self) -> None:
        self.urgency = 0
        # A handler may interrupt the very wait that it ends, so the two may share no lock.
        self._news: SimpleQueue[int] = SimpleQueue()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {signum: signal.signal(signum, self._on_signal) for signum in HANDLED}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def wait(self, timeout: float) -> bool:
        """Wait a while, less if a signal comes; tells whether any has come so far."""
        with suppress(Empty):
            self._news.get(timeout=timeout)
        return self.urgency > 0

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        self.urgency = self.urgency + 1 if signum == signal.SIGINT else max(2, self.urgency + 1)
        self._news.put(self.urgency)


FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
# One that ran for so long did not fall over its own start.
SOUND_S = 60.0
# The start of a process is told to the second, and the time of a file by another clock.
CLOCKS_DIFFER_S = 2.0
GATED = Path(__file__).with_name("gated.py")


@dataclass
class ChildProcess:
    """One child, of one of our modules.

    `env` are its FORGE_* settings, `folder` is its own, and its output goes to `log`.
    """

    name: str
    module: str
    folder: Path
    log: Path
    env: dict[str, str]
    restarts: int = 0
    _child: subprocess.Popen[bytes] | None = None
    _started: float = 0.0
    _pause: float = FIRST_PAUSE_S
    _again_at: float = field(default=0.0)

    def load(self) -> None:
        """Let it load its module, and run no further, after ending one that outlived us."""
        self.folder.mkdir(parents=True, exist_ok=True)
        end_leftover(self._pid_file, self.module)
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C is for `forge up`, which stops it in order.
            self._child = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-P", GATED, self.module],
                env={**os.environ, **self.env},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started = time.monotonic()
        self._pid_file.write_text(f"{self._child.pid}\n", encoding="utf-8")

    def start(self) -> None:
        """Start it, at once if it has been loaded; what has come to `env` since counts."""
        if self._child is None:
            self.load()
        if self._child and self._child.stdin:
            # One that fell over while it loaded is seen when it is looked after.
            with suppress(BrokenPipeError), self._child.stdin as gate:
                gate.write(json.dumps(self.env).encode())

    def look_after(self) -> int | None:
        """Start it again if it fell over and has rested; returns a status just seen, else None."""
        if self._child is None:
            if time.monotonic() >= self._again_at:
                self.restarts += 1
                self.start()
            return None
        status = self._child.poll()
        if status is None:
            return None
        if time.monotonic() - self._started > SOUND_S:
            self._pause = FIRST_PAUSE_S
        self._child = None
        self._again_at = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE_S)
        return status

    @property
    def rest_s(self) -> float:
        """How long until it is started again, in seconds."""
        return max(0.0, self._again_at - time.monotonic())

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._child is not None and self._child.poll() is None

    def ask(self, signum: signal.Signals) -> None:
        """Send it a signal; one that is gone is fine."""
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signum)

    def forget(self) -> None:
        """Take note that it has left in good order."""
        self._pid_file.unlink(missing_ok=True)

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; tells whether it has come."""
        with suppress(subprocess.TimeoutExpired):
            if self._child is not None:
                self._child.wait(timeout_s)
        return not self.alive

    @property
    def _pid_file(self) -> Path:
        return self.folder / "pid"


def end_leftover(pid_file: Path, module: str) -> None:
    """End a child of a `forge up` that was killed, if there is one."""
    try:
        process = psutil.Process(int(pid_file.read_text(encoding="utf-8")))
        # The number may be another's by now, and that other another worker.
        later = process.create_time() > pid_file.stat().st_mtime + CLOCKS_DIFFER_S
        if later or module not in process.cmdline():
            return
        process.kill()
        process.wait(timeout=10)
    except (OSError, ValueError, psutil.Error):
        return
