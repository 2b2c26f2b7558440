"""Start the shims of jobs. One is started ahead of its job, since Python takes long to load."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from forge_worker.runners.process.shim import BLANK

if TYPE_CHECKING:
    from forge_worker.runners.runner import RunSpec

PACKAGES = str(Path(__file__).parents[3])
MARK = "forge-shim"
BOOT = (
    f"import sys; sys.path.insert(0, {PACKAGES!r}); "
    "from forge_worker.runners.process.shim import main; main()"
)
LATER_S = 0.5
END_S = 5.0

Shim = tuple[subprocess.Popen[bytes], socket.socket]
"""The program, and the agent's end of the socket between them."""


class Shims:
    """Starts shims; after the first, if `ahead`, there is one that waits for its job.

    It gets its job's name with the order, and has nothing of another job. Thread-safe.
    """

    def __init__(self, *, ahead: bool) -> None:
        # A process can change its command line only where the kernel shows its memory's layout.
        self._ahead = ahead and sys.platform == "linux"
        self._spare: list[Shim] = []
        self._lock = threading.Lock()
        weakref.finalize(self, _discard, self._spare)

    def take(self, spec: RunSpec) -> Shim:
        """Return a shim for a job.

        Raises:
            OSError: it cannot be started, or there is no place for the log.
        """
        with spec.log_path.open("ab") as log, self._lock:
            if self._spare and len("\0".join(title(spec)).encode()) < len(BLANK):
                shim = self._spare.pop()
                if shim[0].poll() is None:
                    return shim
                shim[1].close()
            return _started(title(spec), log.fileno())

    def prepare(self) -> None:
        """Have a shim for the next job soon: the one that starts now needs the CPUs first."""
        if self._ahead and not self._spare:
            later = threading.Timer(LATER_S, self._prepare)
            later.daemon = True
            with contextlib.suppress(RuntimeError):
                later.start()

    def _prepare(self) -> None:
        # Without one, the next job waits for its own.
        with self._lock, contextlib.suppress(OSError):
            if not self._spare:
                self._spare.append(_started([BLANK], subprocess.DEVNULL))


def title(spec: RunSpec) -> list[str]:
    """Return the end of a shim's command line, by which a later agent finds it."""
    return [spec.name, *(f"{name}={value}" for name, value in spec.labels.items())]


def base_environment() -> dict[str, str]:
    """Return the few variables of the agent that a job inherits; others may be secrets."""
    # If no `python` is installed, a job's `python train.py` uses the agent's.
    path = f"{os.environ.get('PATH', os.defpath)}:{Path(sys.executable).parent}"
    env = {"PATH": path, "HOME": str(Path.home()), "LANG": os.environ.get("LANG", "C.UTF-8")}
    return env | {name: os.environ[name] for name in ("TZ",) if name in os.environ}


def _started(words: list[str], output: int) -> Shim:
    ours, theirs = socket.socketpair()
    program = [sys.executable, "-I", "-S", "-c", BOOT, str(theirs.fileno()), MARK]
    try:
        with theirs:
            shim = subprocess.Popen(  # noqa: S603  our own program, and no shell
                [*program, *words],
                env=base_environment(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
    except OSError:
        ours.close()
        raise
    return shim, ours


def _discard(spare: list[Shim]) -> None:
    """End the shims without a job: they leave when their socket closes."""
    for shim, agent in spare:
        agent.close()
        try:
            shim.wait(END_S)
        except subprocess.TimeoutExpired:
            shim.kill()
            shim.wait()
