"""What a tracker's run is called, so that every attempt of a job finds it again."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from forge_worker import job

if TYPE_CHECKING:
    from collections.abc import Callable

# Names the job among those of all queues.
NAME = "FORGE_RUN"


def name() -> str | None:
    """Return the name of the job's run, the same in every attempt; None outside Forge."""
    return os.environ.get(NAME)


def group() -> str | None:
    """Return the experiment, to which similar jobs belong."""
    return os.environ.get("FORGE_EXPERIMENT")


def parameters() -> dict[str, object]:
    """Return the job's parameters."""
    found = json.loads(os.environ.get("FORGE_PARAMETERS") or "{}")
    return found if isinstance(found, dict) else {}


def link(tracker: str, url: str | None) -> None:
    """Report the address of the run, without any credentials in it."""
    found = urlsplit(url or "")
    if found.scheme in ("http", "https"):
        address = found._replace(netloc=found.netloc.rpartition("@")[2])
        job.report(**{tracker: address.geturl()})


def note(said: str) -> None:
    """Write a line into the job's log."""
    sys.stderr.write(f"forge: {said}\n")
    sys.stderr.flush()


def before_a_stop(finish: Callable[[], object], seconds: float) -> None:
    """Have something finished, for so long at most, before a SIGTERM ends the program.

    A program with a handler of its own decides for itself: what it leaves unfinished is finished
    when it exits. Main thread only.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    own = os.getpid()

    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        # A process that was forked has only a copy of it.
        if os.getpid() == own:
            # The main thread may hold the library's locks.
            thread = threading.Thread(target=finish, daemon=True)
            thread.start()
            thread.join(seconds)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, stop)
