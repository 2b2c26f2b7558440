"""The sweeper: a tick on a clock, by APScheduler.

Any number of sweepers may run at once. Of those, one works and the others watch: each ticks only if
none has completed a tick within the last period. Old jobs are removed by every sweeper that is told
to, since the one that works may not have been.
"""

from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from threading import Lock
from time import monotonic

from forge_schema.program import lean

lean.without_plugins("apscheduler.schedulers.base")

# isort: split
import structlog
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from forge_schema.notifications.sender import DeliverySender
from forge_schema.sweeper.retention import Retention
from forge_schema.sweeper.tick import Tick

# Late ticks are never dropped, missed ones are merged, and ticks never overlap.
JOB_DEFAULTS = {"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
# A tick goes on while old jobs are removed; what is left is soon done.
THREADS = 2
RED_AFTER_PERIODS = 3
# A sweeper may come a little early without waiting for its next turn.
TURN_SHARE = 0.8
# Much less than a worker waits before it looks by itself.
WAKE_EVERY_S = 2.0
RETAIN_EVERY_S = 60.0
SEND_EVERY_S = 2.0

log = structlog.get_logger(__name__)


class Sweeper:
    """Ticks every `period_s` seconds in its own thread; removes old jobs and sends in others.

    `clock` returns the time in seconds. Errors in `logged` have been logged by whoever raised them.
    """

    def __init__(
        self,
        tick: Tick,
        *,
        period_s: float,
        retention: Retention | None = None,
        sender: DeliverySender | None = None,
        logged: tuple[type[Exception], ...] = (),
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._tick = tick
        self._retention = retention
        self._sender = sender
        self._logged = logged
        self._period_s = period_s
        self._scheduler = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(THREADS)},
            job_defaults=JOB_DEFAULTS,
            timezone="UTC",
        )
        self._lock = Lock()
        self._clock = clock
        self._succeeded_at = clock()
        # Whether this sweeper works while the others watch.
        self._active = False

    @property
    def healthy(self) -> bool:
        """Whether a tick of this sweeper succeeded, or was another's, within three periods."""
        with self._lock:
            return self._clock() - self._succeeded_at <= RED_AFTER_PERIODS * self._period_s

    def start(self) -> None:
        self._every(self._period_s, self.tick)
        self._every(WAKE_EVERY_S, self.wake_again)
        if self._retention is not None:
            self._every(RETAIN_EVERY_S, self.retain)
        if self._sender is not None:
            self._every(SEND_EVERY_S, self.send)
        self._scheduler.start()

    def _every(self, period_s: float, act: Callable[[], None]) -> None:
        self._scheduler.add_job(act, IntervalTrigger(seconds=period_s, timezone="UTC"))

    def end(self) -> None:
        """Stop after the current tick."""
        if self._retention is not None:
            self._retention.end()
        self._scheduler.shutdown(wait=True)
        if self._sender is not None:
            self._sender.end()

    def tick(self) -> None:
        """Tick once, if it is time. A failure is logged, and the next tick tries again."""
        try:
            self._active = self._tick.is_due(timedelta(seconds=TURN_SHARE * self._period_s))
            if self._active:
                self._run()
        except Exception as error:  # noqa: BLE001 - the clock must continue whatever happens in a tick
            self._failed("tick_failed", error)
            return
        with self._lock:
            self._succeeded_at = self._clock()

    def wake_again(self) -> None:
        """Between the ticks of the sweeper that works, draft workers and repeat lost hints."""
        if not self._active:
            return
        try:
            self._tick.draft()
            self._tick.wake_again()
        except Exception as error:  # noqa: BLE001 - as above
            self._failed("wake_failed", error)

    def send(self) -> None:
        """Begin to send the notifications that are due, if this sweeper works."""
        if not self._active:
            return
        assert self._sender is not None  # noqa: S101 - else it is not scheduled
        try:
            self._sender.begin()
        except Exception as error:  # noqa: BLE001 - as above
            self._failed("sending_failed", error)

    def retain(self) -> None:
        """Remove what is old. A failure is logged, and the next round continues."""
        assert self._retention is not None  # noqa: S101 - else it is not scheduled
        try:
            removed = self._retention.run()
        except Exception as error:  # noqa: BLE001 - as above
            self._failed("retention_failed", error)
            return
        _log("removed", asdict(removed))

    def _failed(self, event: str, error: Exception) -> None:
        if not isinstance(error, self._logged):
            log.warning(event, error=str(error))

    def _run(self) -> None:
        moved = self._tick.run()
        self._tick.done()
        _log("ticked", asdict(moved))


def _log(event: str, counts: dict[str, int]) -> None:
    if some := {step: count for step, count in counts.items() if count}:
        log.info(event, **some)
