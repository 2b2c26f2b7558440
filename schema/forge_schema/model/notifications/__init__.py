"""Models of notifications, and the events that they tell of."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from forge_schema.model.fields import Answer, Flag, KnownFields, Note, Open, Record, Text, Word
from forge_schema.model.states import NotificationKind, Occasion


class DeliveryState(StrEnum):
    """Where a delivery is: `failed` ones are no longer tried, unless somebody asks."""

    WAITING = "waiting"
    SENT = "sent"
    FAILED = "failed"


# Its name is part of a path, and of the subject of an e-mail.
NotificationName = Annotated[Word, Field(max_length=100)]
# Ended without success, or in need of somebody.
TROUBLE = (Occasion.FAILED, Occasion.STALLED, Occasion.APPROVAL)


class NotificationRequest(KnownFields):
    """What a person writes about a notification; of one that is there, what is null stays.

    `target` is the URL of a webhook, or the address of an e-mail; a new notification has one, and
    `kind` is given with it. `query` chooses jobs as `forge ps` does; an empty one chooses all.
    `everyone` includes those of all owners. A `team` has it cover those of the team's owners, an
    empty one those of its own owner again. The secret of its webhooks stays without `new_secret`.
    """

    kind: NotificationKind | None = None
    target: Annotated[
        Annotated[Text, Field(min_length=1, max_length=2000)] | None, Field(repr=False)
    ] = None
    events: Annotated[list[Occasion], Field(min_length=1)] | None = None
    query: Annotated[Text, Field(max_length=1000)] | None = None
    everyone: Flag | None = None
    team: Annotated[Text, Field(max_length=200)] | None = None
    new_secret: Flag = False


class Notification(Record):
    """A notification without its secrets: of a URL, `target` has only the scheme and the host.

    `error` is why the last try failed, null since one has succeeded; none is made before
    `paused_until`. `withheld` is why nothing is sent: its maker may not see the jobs any more.
    """

    owner: str
    name: str
    kind: Open[NotificationKind]
    target: str
    events: list[Open[Occasion]]
    query: str = ""
    everyone: bool = False
    team: str | None = None
    created_at: datetime
    waiting: int = 0
    failed: int = 0
    error: str | None = None
    paused_until: datetime | None = None
    withheld: str | None = None


class KeptNotification(Record):
    """A notification that was just stored.

    `changed` names the fields that are different now, and is null if there was none of its name.
    `secret` is what its webhooks are signed with, if that is new: it is shown once.
    """

    notification: Notification
    changed: list[str] | None = None
    secret: str | None = None


class Delivery(Record):
    """One message of a notification. Receivers know a repetition by its `id`.

    A waiting one is tried again at `next_at`, when its own pause and its receiver's are over.
    """

    id: str
    notification: str
    owner: str
    event: str
    job_id: int | None = None
    worker_id: int | None = None
    at: datetime
    state: Open[DeliveryState]
    tries: int
    next_at: datetime | None = None
    settled_at: datetime | None = None
    error: str | None = None


class Retried(Answer):
    """How many deliveries are tried again."""

    retried: int


class Notifier(Record):
    """How notifications leave: the mail server without its password, and what webhooks reach.

    `allow` has the networks that are reached in addition to public addresses.
    """

    smtp: str | None = None
    sender: str | None = None
    allow: list[str] = Field(default_factory=list)


class NotifierChanges(KnownFields):
    """Some settings of the notifier; those left out stay. A null `smtp_url` sends no e-mail."""

    smtp_url: Annotated[Annotated[Text, Field(max_length=2000)] | None, Field(repr=False)] = None
    sender: Note | None = None
    allow: list[Annotated[Text, Field(max_length=50)]] = Field(default_factory=list, max_length=100)


class Message(Record):
    """What is sent: an event's type, its time, and the job or the worker."""

    type: str
    timestamp: datetime
    data: dict[str, Any]
