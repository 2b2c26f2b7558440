"""Crash-loop back-off: after repeated crashes, wait before the next start."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import uniform
from threading import Event
from time import time

import structlog

from forge_worker.files.small_files import write_atomically
from forge_worker.worker_folder import FolderGone

FILE = "crashes.json"
# Crashes within this time of the start are counted as one series.
SOON_S = 60.0
# This many crashes in a row cause no wait.
FREE = 3
FIRST_PAUSE_S = 5.0
KILLED = "it was killed, or the machine went down"
WHY_LENGTH = 1000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Crashes:
    """Crashes in a row, why the last one happened, and when the newest start began.

    `until` is the end of the current wait; both are wall-clock times, for display.
    """

    bad: int = 0
    why: str = ""
    began: float = 0.0
    until: float = 0.0
    ended: bool = False


@contextmanager
def counted(
    folder: Path,
    *,
    limit_s: float,
    clock: Callable[[], float] = time,
    wait: Callable[[float], object] = lambda pause_s: Event().wait(pause_s),
) -> Iterator[None]:
    """Wait if earlier starts crashed, and record how the block ends.

    The caller must hold the folder's lock. A clean end resets the count.
    """
    now = clock()
    before = _before(read(folder), now)
    try:
        if before.bad >= FREE:
            pause_s = min(limit_s, FIRST_PAUSE_S * 2.0 ** min(before.bad - FREE, 20))
            pause_s *= uniform(0.5, 1.0)  # noqa: S311 - no secret
            _announce(folder, before, now, pause_s)
            wait(pause_s)
            now = clock()
        _keep(folder, Crashes(before.bad, before.why, now))
        yield
    except FolderGone:
        # Nothing can be kept there.
        raise
    except Exception as error:
        why = (str(error) or type(error).__name__)[:WHY_LENGTH]
        _keep(folder, Crashes(before.bad + 1, why, now, ended=True))
        raise
    except BaseException:
        # The worker was told to leave before an agent could react.
        forget(folder)
        raise
    forget(folder)


def _announce(folder: Path, before: Crashes, now: float, pause_s: float) -> None:
    _keep(folder, Crashes(before.bad, before.why, now, now + pause_s))
    log.error(
        "start_delayed",
        note="the last starts crashed",
        starts=before.bad,
        last=before.why,
        wait_s=round(pause_s, 1),
    )


def read(folder: Path) -> Crashes:
    """Return the record of the worker's starts; an empty one if it cannot be read."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        kept = json.loads((folder / FILE).read_text(encoding="utf-8"))
        began, until = float(kept["began"]), float(kept["until"])
        return Crashes(int(kept["bad"]), str(kept["why"]), began, until, ended=bool(kept["ended"]))
    return Crashes()


def summary(folder: Path) -> dict[str, object]:
    """Return the number of crashes in a row and the last one's reason, for `--status`."""
    kept = read(folder)
    waits_s = max(0.0, kept.until - time())
    return {"bad_ends": kept.bad, "why": kept.why, "waits_s": round(waits_s)} if kept.bad else {}


def forget(folder: Path) -> None:
    """Count the end of this start as a clean one."""
    with suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)


def _before(kept: Crashes, now: float) -> Crashes:
    """Return the series that a start at `now` continues; empty if the last one was long ago."""
    if not kept.began or not 0 <= now - max(kept.began, kept.until) < SOON_S:
        return Crashes()
    return kept if kept.ended else Crashes(kept.bad + 1, KILLED, kept.began)


def _keep(folder: Path, crashes: Crashes) -> None:
    try:
        write_atomically(folder / FILE, json.dumps(asdict(crashes)), durable=True)
    except OSError as error:
        log.warning("start_not_recorded", error=str(error))
