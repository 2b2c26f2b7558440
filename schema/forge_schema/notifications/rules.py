"""The notifications of owners, their deliveries, and how these leave."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from forge_schema.database.pool import Database, Row
from forge_schema.http_client import is_http
from forge_schema.job_filter import parse
from forge_schema.model.errors import ForgeError, nearest
from forge_schema.model.notifications import (
    TROUBLE,
    Delivery,
    DeliveryState,
    KeptNotification,
    Notification,
    NotificationRequest,
    Notifier,
    NotifierChanges,
)
from forge_schema.model.states import NotificationKind
from forge_schema.notifications.channels import MailServer, new_secret
from forge_schema.notifications.messages import trial_message
from forge_schema.notifications.trying import networks

# They say where a job is at the moment; which events are told of, the notification says.
OF_THE_MOMENT = ("state", "waits", "worker", "since")
# What a person chooses; a change tells which of them it changed.
FIELDS = ("kind", "target", "events", "query", "everyone", "team")
TARGETS = "for a new one, say how: --webhook URL, --slack URL or --email ADDRESS"
LISTED = "`forge notification list` lists them; an admin names another owner with --owner"
TAKES_OVER = "`forge notification add NAME` by somebody who may see these jobs takes it over"
PAGE = 1000
# A longer URL is shown with so much of its end.
LONG, END = 60, 4


class NotificationUnknown(ForgeError):
    """The owner has no notification with this name."""

    code = "notification_not_found"


class DeliveryUnknown(ForgeError):
    """There is no such delivery, or it was removed."""

    code = "delivery_not_found"


class NotificationWithheld(ForgeError):
    """Its maker may not see what it tells of any more."""


class NotificationInvalid(ForgeError):
    """Its target or its query cannot be used."""


class Notifications:
    """The notifications of some owners.

    Args:
        owner: whose notifications are changed; None for all.
        scope: the owners whose notifications are read; None for all.
    """

    def __init__(
        self, database: Database, *, owner: str | None, scope: list[str] | None, actor: str
    ) -> None:
        self._database = database
        self._owner = owner
        self._scope = scope
        self._actor = actor

    def keep(
        self, name: str, wanted: NotificationRequest, *, server: str | None
    ) -> KeptNotification:
        """Store a notification under a name; of one that is there, what is left out stays.

        Raises:
            NotificationInvalid: its target or its query cannot be used.
            NotificationUnknown: there is none with this name, and no target is given.
            FilterInvalid: its query is malformed.
        """
        former, secret = self._rows(name), new_secret()
        wanted = _of_one_kind(wanted)
        _check(self.planned(name, wanted))
        kept = self._database.row(
            "put_notification",
            again=True,
            **wanted.model_dump(mode="json"),
            usual=[event.value for event in TROUBLE],
            owner=self._owner,
            name=name,
            secret=secret,
            server=server,
            actor=self._actor,
        )
        if kept is None:
            raise self._unknown(name, hint=TARGETS)
        now = self._row(name)
        return KeptNotification(
            notification=_shown(now),
            changed=[field for field in FIELDS if former[0][field] != now[field]]
            if former
            else None,
            secret=secret if kept["has_given_secret"] else None,
        )

    def planned(self, name: str, wanted: NotificationRequest) -> NotificationRequest:
        """Return what a notification will be, with what stays of the one that is there.

        Raises:
            NotificationInvalid: of its kind and its target only one is given.
            NotificationUnknown: there is none with this name, and no target is given.
        """
        if (wanted.kind is None) != (wanted.target is None):
            raise NotificationInvalid("a target and its kind are given together")
        former = next(iter(self._rows(name)), {})
        stays = {field: former.get(field) for field in FIELDS if getattr(wanted, field) is None}
        whole = NotificationRequest.model_validate({**wanted.model_dump(), **stays})
        if whole.target is None:
            raise self._unknown(name, hint=TARGETS)
        return whole

    def get(self, name: str) -> Notification:
        """Return a notification; `NotificationUnknown` if there is none with this name."""
        return _shown(self._row(name))

    def listed(self) -> list[Notification]:
        """Return the notifications, by owner and name."""
        return [_shown(row) for row in self._rows(None)]

    def remove(self, name: str) -> None:
        """Remove a notification, and what it has not sent.

        Raises:
            NotificationUnknown: there is none with this name.
        """
        removed = self._database.row(
            "delete_notification", owner=self._owner, name=name, actor=self._actor
        )
        if removed is None:
            raise self._unknown(name)

    def test(self, name: str) -> str:
        """Have a notification send a message at once; return the id of its delivery.

        Raises:
            NotificationUnknown: there is none with this name.
            NotificationWithheld: its maker may not see what it tells of any more.
        """
        row, delivery_id = self._row(name), uuid4()
        if row["withheld"]:
            raise NotificationWithheld(
                f"notification {name!r} is paused: {row['withheld']}", hint=TAKES_OVER
            )
        self._database.rows(
            "add_delivery",
            again=True,
            delivery_id=delivery_id,
            owner=self._owner,
            name=name,
            event="test",
            # Two at the same moment are two.
            subject=delivery_id.int >> 66,
            message=Jsonb(trial_message(name, row["server"])),
        )
        return str(delivery_id)

    def deliveries(
        self,
        *,
        name: str | None = None,
        state: DeliveryState | None = None,
        before: UUID | None = None,
        count: int = PAGE,
    ) -> list[Delivery]:
        """Return deliveries, the newest first, before one of them."""
        chosen = {"name": name, "state": state and state.value, "before": before}
        return self._deliveries(None, min(count, PAGE), chosen)

    def delivery(self, delivery_id: UUID) -> Delivery:
        """Return a delivery; `DeliveryUnknown` if there is none with this id."""
        nothing = dict.fromkeys(("name", "state", "before"))
        if deliveries := self._deliveries(delivery_id, 1, nothing):
            return deliveries[0]
        raise DeliveryUnknown(
            f"there is no delivery {delivery_id}",
            hint="`forge notification deliveries` lists them; old ones are removed",
        )

    def retry(self, *, name: str | None, ids: Sequence[UUID] | None) -> int:
        """Have failed deliveries tried again; return how many. A repeat finds none."""
        row = self._database.row(
            "retry_deliveries",
            again=True,
            owner=self._owner,
            name=name,
            ids=None if ids is None else list(ids),
        )
        return int(row["retried"]) if row else 0

    def _deliveries(
        self, delivery_id: UUID | None, count: int, chosen: Mapping[str, object]
    ) -> list[Delivery]:
        rows = self._database.rows(
            "deliveries",
            again=True,
            scope=self._scope,
            delivery_id=delivery_id,
            count=count,
            **chosen,
        )
        return [Delivery.model_validate(row) for row in rows]

    def _row(self, name: str) -> Row:
        rows = self._rows(name)
        if not rows:
            raise self._unknown(name)
        return rows[0]

    def _rows(self, name: str | None) -> list[Row]:
        return self._database.rows("notifications", again=True, scope=self._scope, name=name)

    def _unknown(self, name: str, *, hint: str = LISTED) -> NotificationUnknown:
        near = "" if hint == TARGETS else nearest(name, (row["name"] for row in self._rows(None)))
        return NotificationUnknown(f"{self._owner} has no notification {name!r}", hint=near + hint)


def notifier(database: Database) -> Notifier:
    """Return how notifications leave, without the mail server's user and password."""
    row = database.row("notifier", again=True) or {}
    url = row.get("smtp_url")
    host = url and _scheme_and_host(url)
    return Notifier(smtp=host, sender=row.get("sender"), allow=row.get("allow") or [])


def set_notifier(database: Database, changes: NotifierChanges, *, actor: str) -> None:
    """Change how notifications leave; what was left out stays.

    Raises:
        NotificationInvalid: the mail server, the sender or a network cannot be used.
    """
    if changes.smtp_url:
        try:
            MailServer.of(changes.smtp_url, "")
        except ValueError as error:
            raise NotificationInvalid(str(error)) from error
    if changes.sender:
        _check_address(changes.sender)
    try:
        networks(changes.allow)
    except ValueError as error:
        raise NotificationInvalid(str(error), hint="write a network as 10.0.0.0/8") from error
    given = sorted(changes.model_fields_set)
    database.rows("set_notifier", again=True, **changes.model_dump(), given=given, actor=actor)


def _of_one_kind(wanted: NotificationRequest) -> NotificationRequest:
    """Have a team take the place of everyone, and everyone that of a team."""
    if wanted.everyone and wanted.team:
        raise NotificationInvalid(
            "a notification covers a team or everyone", hint="leave out --team or --everyone"
        )
    other = {"team": ""} if wanted.everyone else {"everyone": False} if wanted.team else {}
    return wanted.model_copy(update=other)


def _check(wanted: NotificationRequest) -> None:
    _check_target(wanted, wanted.target or "")
    _check_query(wanted.query or "")


def _check_target(wanted: NotificationRequest, target: str) -> None:
    if wanted.new_secret and wanted.kind is not NotificationKind.WEBHOOK:
        raise NotificationInvalid(
            "only webhooks are signed with a secret", hint="leave out the wish for a new one"
        )
    if wanted.kind is NotificationKind.EMAIL:
        _check_address(target)
        return
    # Nothing that could break a line of the request.
    if not is_http(target):
        why = "begins with https:// or http://, and has a host"
    elif "@" in urlsplit(target).netloc:
        why = "has no user"
    elif not _is_plain(target):
        why = "has only printable ASCII characters, and no space"
    else:
        return
    raise NotificationInvalid(
        f"the URL of a webhook {why}", hint="write it as https://hooks.example/path"
    )


def _check_address(text: str) -> None:
    name, _, host = text.rpartition("@")
    if not name or not host or not _is_plain(text) or "," in text:
        raise NotificationInvalid(
            "that is not one address of e-mail", hint="write it as ann@example.com"
        )


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _check_query(query: str) -> None:
    wanted = parse(query)
    if passing_key := next((key for key in OF_THE_MOMENT if wanted.values(key)), None):
        raise NotificationInvalid(
            f"a notification cannot choose jobs by {passing_key}: it would change until it is sent",
            hint="choose the events instead, and jobs by name, owner, queue, label or reason",
        )


def _shown(row: Row) -> Notification:
    target = row["target"]
    if row["kind"] != NotificationKind.EMAIL:
        # Its end tells channels of one host apart; the rest may be a secret.
        end = target[-END:] if len(target) > LONG else ""
        target = f"{_scheme_and_host(target)}/…{end}"
    return Notification.model_validate({**row, "target": target})


def _scheme_and_host(url: str) -> str:
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}"
