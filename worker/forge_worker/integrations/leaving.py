"""Hears that the job is asked to stop."""

from __future__ import annotations

import signal
import sys
import threading
from typing import NoReturn

from forge_worker import job

# What a program killed by SIGTERM exits with. After 0, the job would have succeeded.
STOPPED = 143
_heard = threading.Event()


def listen() -> None:
    """Survive SIGTERM from now on, so that the current step can be saved; main thread only."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: _heard.set())


def asked() -> bool:
    """Return whether this process is asked to stop."""
    return _heard.is_set() or job.should_stop()


def leave() -> NoReturn:
    """Exit as a program that was stopped."""
    sys.exit(STOPPED)
