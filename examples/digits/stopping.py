"""Being asked to stop: SIGTERM, or the file that announces a preemption."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

# The exit code that a shell reports for a process ended by SIGTERM.
STATUS = 128 + signal.SIGTERM


class Stopping:
    """Remembers whether this process was asked to stop."""

    def __init__(self) -> None:
        self._signalled = False
        self._notice = os.environ.get("FORGE_PREEMPT_FILE")
        signal.signal(signal.SIGTERM, self._on_signal)

    def exit_if_asked(self, completed: int) -> None:
        """Leave if asked to; every completed epoch has its checkpoint already.

        Raises:
            SystemExit: somebody asked, with status 143.
        """
        if self._signalled or (self._notice and Path(self._notice).exists()):
            print(f"stopped after epoch {completed}, whose checkpoint is saved", flush=True)
            sys.exit(STATUS)

    def wait_until(self, moment: float, completed: int) -> None:
        """Wait for a moment of the monotonic clock, leaving within 50 ms if asked to."""
        while (left := moment - time.monotonic()) > 0:
            self.exit_if_asked(completed)
            time.sleep(min(left, 0.05))

    def _on_signal(self, _signum: int, _frame: object) -> None:
        self._signalled = True
