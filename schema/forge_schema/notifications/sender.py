"""Send what is due, several notifications at a time, each in turn."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import timedelta
from threading import Event, Lock
from time import monotonic
from uuid import uuid4

import structlog

from forge_schema.database.pool import Database, Row
from forge_schema.model.errors import ForgeError
from forge_schema.notifications.trying import NotSent

THREADS = 8
# Messages for people are put together, so that a sweep is not a thousand of them.
TOGETHER = 20
# Much longer than a try may take.
CLAIM_LASTS = timedelta(minutes=2)
# Several rounds of a sweeper; another sender leads once the one that did is silent for so long.
LEAD_LASTS = timedelta(seconds=10)
# Seconds to wait after each failed try; then the delivery has failed, after about 18 hours.
PAUSES_S = [10, 60, 300, 1800, 7200, 18_000, 36_000]
# Seconds for which a receiver is left alone after a failure; they double up to a minute.
FIRST_BREAK_S = 10
LONGEST_BREAK_S = 60
# A notification with a lot to send makes room for others after so long.
TURN_S = 20.0
MOST = 1_000

log = structlog.get_logger(__name__)


class DeliverySender:
    """Sends deliveries; at least once, the same one with the same id.

    A notification sends one message at a time, so a slow receiver holds up only its own messages
    and one of the threads. Of several senders one leads, and the others send nothing.
    """

    def __init__(
        self,
        database: Database,
        *,
        threads: int = THREADS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._database = database
        self._id = uuid4()
        self._clock = clock
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="notify")
        self._lock = Lock()
        self._sending: dict[int, Future[None]] = {}
        self._ending = Event()

    def begin(self) -> int:
        """Begin to send what is due; return of how many notifications. It does not wait."""
        rows = self._database.rows(
            "due_notifications", again=True, sender=self._id, lasts=LEAD_LASTS, count=MOST
        )
        begun = 0
        with self._lock:
            self._sending = {n: thread for n, thread in self._sending.items() if not thread.done()}
            for notification_id in (row["id"] for row in rows):
                if notification_id not in self._sending:
                    self._sending[notification_id] = self._pool.submit(
                        self._send_due, notification_id
                    )
                    begun += 1
        return begun

    def wait(self) -> None:
        """Wait until what has begun is over."""
        with self._lock:
            begun = list(self._sending.values())
        wait(begun)

    def end(self) -> None:
        """End after the current tries. What is left is due later."""
        self._ending.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _send_due(self, notification_id: int) -> None:
        """Send what is due of one notification, until a failure or the end of its turn."""
        until = self._clock() + TURN_S
        try:
            while not self._ending.is_set() and self._clock() < until:
                if not self._send_next(notification_id):
                    break
        except ForgeError as error:
            # The database is away: what was claimed is due again later.
            log.warning("notification_not_recorded", error=error.message)
        except Exception:
            log.exception("notification_failed")

    def _send_next(self, notification_id: int) -> bool:
        """Claim and send the next message, or those that go together; tell whether to go on."""
        rows = self._database.rows(
            "claim_deliveries",
            notification_id=notification_id,
            together=TOGETHER,
            lasts=CLAIM_LASTS,
        )
        if not rows:
            return False
        failed = _failure_of(rows)
        self._record(rows, failed)
        return failed is None

    def _record(self, rows: list[Row], failed: NotSent | None) -> None:
        if failed:
            log.info("notification_not_sent", name=rows[0]["name"], error=failed.message)
        self._database.rows(
            "record_tries",
            again=True,
            ids=[row["id"] for row in rows],
            tries=[row["tries"] for row in rows],
            error=failed.message if failed else None,
            least_s=failed.least_s if failed else 0,
            pauses=PAUSES_S,
            first_s=FIRST_BREAK_S,
            longest_s=LONGEST_BREAK_S,
        )


def _failure_of(rows: list[Row]) -> NotSent | None:
    # It takes a while to import, and many sweepers never send anything.
    from forge_schema.notifications.delivery import deliver  # noqa: PLC0415

    try:
        deliver(rows)
    except NotSent as error:
        return error
    return None
