"""Send what is due, several notifications at a time, each in turn."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import timedelta
from threading import Event, Lock
from time import monotonic
from typing import TYPE_CHECKING
from uuid import UUID, uuid4, uuid5

import structlog

from forge_schema.database.pool import Database, Row
from forge_schema.model.errors import ForgeError
from forge_schema.model.states import NotificationKind
from forge_schema.notifications.messages import line, url_of
from forge_schema.notifications.trying import NotSent

if TYPE_CHECKING:
    from forge_schema.notifications.channels import MailServer

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
        self, database: Database, *, threads: int = THREADS, clock: Callable[[], float] = monotonic
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
    try:
        deliver(rows)
    except NotSent as error:
        return error
    return None


def deliver(rows: list[Row]) -> None:
    """Send one message about one or several events, by e-mail, to Slack or to a webhook.

    Raises:
        NotSent: this try failed.
    """
    # These take a while to import, and many sweepers never send anything.
    from forge_schema.notifications.channels import encoded, mail, post, signed, slack_body  # noqa: PLC0415

    first, messages = rows[0], [row["message"] for row in rows]
    match first["kind"]:
        case NotificationKind.EMAIL:
            sentences = [*map(line, messages)]
            links = [url for message in messages if (url := url_of(message))]
            mail(_mail_server(first), first["target"], sentences, links, str(_id_of(rows)))
        case NotificationKind.SLACK:
            post(first["target"], encoded(slack_body(messages)), {}, allow=first["allow"])
        case _:
            body = encoded(first["message"])
            headers = signed(first["secret"], str(first["id"]), first["now"], body)
            post(first["target"], body, headers, allow=first["allow"])


def _id_of(rows: list[Row]) -> UUID:
    """Return the id of a message about several events: that of others is another one."""
    first, *others = (row["id"] for row in rows)
    return uuid5(first, ",".join(map(str, others))) if others else first


def _mail_server(row: Row) -> MailServer:
    from forge_schema.notifications.channels import MailServer  # noqa: PLC0415 - as above

    if not row["smtp_url"] or not row["sender"]:
        raise NotSent("no mail server is set; an admin sets it with `forge notification setup`")
    return MailServer.of(row["smtp_url"], row["sender"])
