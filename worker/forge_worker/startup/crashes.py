"""A worker that ends badly again and again waits before it starts again, and says why."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import uniform
from threading import Event
from time import time

import structlog

from forge_worker.files.atomic import write_atomically

FILE = "crashes.json"
# Ends within this long of their start are those of one trouble.
SOON_S = 60.0
# So many are taken for chance.
FREE = 3
FIRST_PAUSE_S = 5.0
KILLED = "it was killed, or its machine went down"
WHY_LENGTH = 1000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Crashes:
    """How many starts in a row ended badly, why the last one did, and when the newest began.

    `until` is when that goes on, where it waits; both by the machine's time of day, for people.
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
    """Wait if the starts before this one ended badly, and keep how the block ends.

    Whoever calls holds the folder's lock. A start that ends in good order ends the row.
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
    except Exception as error:
        why = (str(error) or type(error).__name__)[:WHY_LENGTH]
        _keep(folder, Crashes(before.bad + 1, why, now, ended=True))
        raise
    except BaseException:
        # It was told to leave before an agent could heed that.
        _forget(folder)
        raise
    _forget(folder)


def _announce(folder: Path, before: Crashes, now: float, pause_s: float) -> None:
    _keep(folder, Crashes(before.bad, before.why, now, now + pause_s))
    log.error(
        "start_delayed",
        note="the last starts ended badly",
        starts=before.bad,
        last=before.why,
        wait_s=round(pause_s, 1),
    )


def read(folder: Path) -> Crashes:
    """Return what is kept of the worker's starts; nothing where that cannot be read."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        kept = json.loads((folder / FILE).read_text(encoding="utf-8"))
        began, until = float(kept["began"]), float(kept["until"])
        return Crashes(int(kept["bad"]), str(kept["why"]), began, until, ended=bool(kept["ended"]))
    return Crashes()


def told(folder: Path) -> dict[str, object]:
    """Return what `--status` tells: starts in a row that ended badly, the last one's reason."""
    kept = read(folder)
    waits_s = max(0.0, kept.until - time())
    return {"bad_ends": kept.bad, "why": kept.why, "waits_s": round(waits_s)} if kept.bad else {}


def _forget(folder: Path) -> None:
    with suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)


def _before(kept: Crashes, now: float) -> Crashes:
    """Return the row that a start at `now` continues; none if the last one was long ago."""
    if not kept.began or not 0 <= now - max(kept.began, kept.until) < SOON_S:
        return Crashes()
    return kept if kept.ended else Crashes(kept.bad + 1, KILLED, kept.began)


def _keep(folder: Path, crashes: Crashes) -> None:
    try:
        write_atomically(folder / FILE, json.dumps(asdict(crashes)), durable=True)
    except OSError as error:
        log.warning("start_not_recorded", error=str(error))
