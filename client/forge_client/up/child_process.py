"""Child processes of a `forge up`: their pids in a file, and the signals that stop them all."""

import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType, ModuleType, TracebackType
from typing import Any, Self

import psutil

PID_FILE = "pid"
# A last line is not longer.
LAST_BYTES = 1000
START = 19  # of the words after the name in /proc/PID/stat
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
# A child that ran this long did not fail at startup.
SOUND_S = 60.0


def write_pid(path: Path, pid: int) -> None:
    """Record a child that has not been waited for yet."""
    path.write_text(f"{pid} {_started(pid)}\n", encoding="utf-8")


def read_process(path: Path) -> psutil.Process | None:
    """Return the recorded process; None if it has ended."""
    try:
        pid, started = map(int, path.read_text(encoding="utf-8").split())
        process = psutil.Process(pid)
        if _started(pid) == started and process.status() != psutil.STATUS_ZOMBIE:
            return process
    except (OSError, ValueError, psutil.Error):
        pass
    return None


def _started(pid: int) -> int:
    """Return a process's start time in ticks since boot, which clock changes do not affect."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(stat.rpartition(")")[2].split()[START])


class StopSignals:
    """Counts urgency: 1 drain, 2 stop, 3 kill. Ctrl-C adds one, SIGTERM sets at least 2."""

    def __init__(self) -> None:
        self.urgency = 0
        # A handler may interrupt the very wait that it ends, so the two must not share a lock.
        self._news: SimpleQueue[int] = SimpleQueue()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {
            signum: signal.signal(signum, self._on_signal)
            for signum in HANDLED
            # Under nohup, it outlives its terminal.
            if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN
        }
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
        """Wait, but return early if a signal arrives; return whether any has arrived so far."""
        with suppress(Empty):
            self._news.get(timeout=timeout)
        return self.urgency > 0

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        self.urgency = self.urgency + 1 if signum == signal.SIGINT else max(2, self.urgency + 1)
        self._news.put(self.urgency)


@dataclass
class ChildProcess:
    """One child that runs one of our modules.

    `env` contains its FORGE_* settings, `folder` is its own, and its output goes to `log`.
    """

    name: str
    module: str
    folder: Path
    log: Path
    env: dict[str, str]
    restarts: int = 0
    _child: BaseProcess | None = None
    _gate: Connection | None = None
    _started: float = 0.0
    _pause: float = FIRST_PAUSE_S
    _again_at: float = field(default=0.0)

    def load(self) -> None:
        """Have it load its module, without running it yet.

        The first time, it is forked with everything that is loaded here. Later, threads run here
        whose locks a fork would copy in any state, so it gets a fresh interpreter.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        context = get_context("spawn") if self.restarts else get_context("fork")
        gate, theirs = context.Pipe()
        self._child = context.Process(
            target=run, args=(self.name, self.module, self.log, gate, theirs)
        )
        with _signals_held():
            self._child.start()
        theirs.close()
        self._gate = gate
        self._started = time.monotonic()
        write_pid(self._pid_file, self._child.pid or 0)

    def start(self) -> None:
        """Start it, at once if it has been loaded, with the current `env`."""
        if self._child is None:
            self.load()
        if self._gate:
            # If it died while loading, `look_after` notices.
            with suppress(BrokenPipeError), self._gate as gate:
                gate.send(self.env)

    def look_after(self) -> int | None:
        """Restart it if it has died and rested; return an exit status seen just now, else None."""
        if self._child is None:
            if time.monotonic() >= self._again_at:
                self.restarts += 1
                self.start()
            return None
        status = self._child.exitcode
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
        """Seconds until it is restarted."""
        return max(0.0, self._again_at - time.monotonic())

    @property
    def alive(self) -> bool:
        """Whether it is running."""
        return self._child is not None and self._child.exitcode is None

    @property
    def status(self) -> int | None:
        """The exit status of what was started last; None while it runs."""
        return self._child.exitcode if self._child else None

    @property
    def last_words(self) -> str:
        """The last line of its output."""
        with suppress(OSError), self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - LAST_BYTES))
            lines = log.read().decode(errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""

    def ask(self, signum: signal.Signals) -> None:
        """Send it a signal; nothing happens if it has ended."""
        if self._child is not None and self._child.pid and self._child.exitcode is None:
            os.kill(self._child.pid, signum)

    def forget(self) -> None:
        """Record that it left in good order."""
        self._pid_file.unlink(missing_ok=True)

    def wait(self, timeout_s: float) -> bool:
        """Wait for it to end; return whether it has."""
        if self._child is not None:
            self._child.join(timeout_s)
        return not self.alive

    @property
    def _pid_file(self) -> Path:
        return self.folder / PID_FILE


@contextmanager
def _signals_held() -> Iterator[None]:
    # A child that still had our handlers would treat signals as if they were for us.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run(name: str, module: str, log: Path, theirs: Connection, gate: Connection) -> None:
    """Become the program of a module, in the process created for it.

    Args:
        name: its name, which `top` and `ps -o comm` show too.
        module: imported now, and run when the settings arrive.
        log: the file for its output.
        theirs: the other end of `gate`, to be closed: its last copy closes when the parent dies.
        gate: where the settings arrive.
    """
    # A separate session: Ctrl-C goes to `forge up`, which stops this process in order.
    os.setsid()
    theirs.close()
    speak_to(log, "ab")
    with suppress(OSError):
        Path("/proc/self/comm").write_text(f"forge {name}", encoding="utf-8")
    _handle_no_signals()
    program = _loaded(module)
    try:
        with gate:
            os.environ.update(gate.recv())
    except EOFError:
        return
    sys.argv = [module]
    program.main()


def _handle_no_signals() -> None:
    for signum in HANDLED:
        if signal.getsignal(signum) != signal.SIG_IGN:
            interrupt = signum == signal.SIGINT
            signal.signal(signum, signal.default_int_handler if interrupt else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)


def _loaded(module: str) -> ModuleType:
    # Loaded modules stay loaded, so there is nothing to collect.
    gc.disable()
    program = import_module(module)
    gc.freeze()
    gc.enable()
    return program


def speak_to(log: Path, mode: str) -> None:
    """Redirect stdin from /dev/null, and stdout and stderr to a file."""
    with log.open(mode) as out, open(os.devnull, "rb") as nothing:  # noqa: PTH123 - no path
        for number, file in enumerate((nothing, out, out)):
            os.dup2(file.fileno(), number)
