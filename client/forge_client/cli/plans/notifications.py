"""`forge notification`: messages about events, to people and programs."""

import time
from contextlib import suppress
from datetime import UTC, datetime
from shlex import quote
from typing import Annotated

import typer
from forge_schema.model.notifications import (
    Delivery,
    DeliveryState,
    KeptNotification,
    Notification,
    Notifier,
)
from forge_schema.model.quantities import counted
from forge_schema.model.states import NotificationKind, Occasion

from forge_client.backend import Backend
from forge_client.cli.options.command_line import VerbNames
from forge_client.cli.options.names import notifications, teams
from forge_client.cli.options.selection import SureOption, ask
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import FormatOption, span
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format, ago
from forge_client.errors import ClientError, ExitCode, NotAllowed

app = typer.Typer(
    cls=VerbNames, no_args_is_help=True, help="Messages about events, to people and programs."
)
Name = Annotated[str, typer.Argument(help="The notification's name.", autocompletion=notifications)]
OfName = Annotated[
    str | None,
    typer.Option("--name", help="Only of this notification.", autocompletion=notifications),
]
Owner = Annotated[
    str | None, typer.Option(help="Whose notification: yours, unless an admin names another.")
]
LOOK_S = 0.5


def _state(rule: Notification) -> str:
    waiting = f"{rule.waiting} waiting" if rule.waiting else ""
    failed = f"{rule.failed} failed" if rule.failed else ""
    if rule.withheld:
        return ", ".join(filter(None, ("paused", failed)))
    paused = f"next try {ago(rule.paused_until)}" if rule.waiting and rule.paused_until else ""
    return ", ".join(filter(None, (waiting, paused, failed)))


def _next(delivery: Delivery) -> str:
    overdue = delivery.next_at is not None and delivery.next_at <= datetime.now(UTC)
    return "now" if overdue else ago(delivery.next_at)


COLUMNS: list[Column] = [
    ("NAME", lambda n: n.name),
    ("KIND", lambda n: n.kind),
    ("TARGET", lambda n: n.target),
    ("EVENTS", lambda n: ",".join(n.events)),
    ("QUERY", lambda n: n.query),
    ("OWNER", lambda n: "everyone" if n.everyone else f"team {n.team}" if n.team else n.owner),
    ("DELIVERIES", _state),
    ("ERROR", lambda n: n.withheld or n.error),
]
DELIVERIES: list[Column] = [
    ("ID", lambda d: d.id),
    ("NOTIFICATION", lambda d: d.notification),
    ("EVENT", lambda d: d.event),
    ("JOB", lambda d: d.job_id),
    ("AT", lambda d: ago(d.at)),
    ("STATE", lambda d: d.state),
    ("TRIES", lambda d: d.tries),
    ("NEXT", _next),
    ("ERROR", lambda d: d.error),
]


@app.callback()
def notification() -> None:
    """Manage messages about events."""


@app.command()
def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the notification.")],
    webhook: Annotated[str | None, typer.Option(help="URL to send signed webhooks to.")] = None,
    slack: Annotated[str | None, typer.Option(help="URL of an incoming webhook of Slack.")] = None,
    email: Annotated[str | None, typer.Option(help="Address to send e-mail to.")] = None,
    on: Annotated[
        list[Occasion] | None,
        typer.Option(help="Event to report; may be repeated. [failed, stalled, approval]"),
    ] = None,
    query: Annotated[
        str | None, typer.Option("--query", "-q", help="Which jobs, as in `forge ps`; '' for all.")
    ] = None,
    everyone: Annotated[
        bool | None,
        typer.Option("--everyone/--no-everyone", help="Include all owners' jobs; for admins."),
    ] = None,
    team: Annotated[
        str | None,
        typer.Option(help="Cover this team's jobs; '' for yours alone.", autocompletion=teams),
    ] = None,
    new_secret: Annotated[
        bool, typer.Option("--new-secret", help="Make a new secret for a webhook that has one.")
    ] = False,
    owner: Owner = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Have messages sent about events, or change the notification of this name.

    What is left out of a change stays. The secret that signs webhooks is shown once.
    """
    targets = {"webhook": webhook, "slack": slack, "email": email}
    given = [(kind, target) for kind, target in targets.items() if target is not None]
    if len(given) > 1:
        raise typer.BadParameter("give only one of --webhook, --slack and --email")
    kind, target = given[0] if given else (None, None)
    wanted = {
        "kind": kind,
        "target": target,
        "events": [event.value for event in on] if on else None,
        "query": query,
        "everyone": everyone,
        "team": team,
        "new_secret": new_secret,
    }
    with backend_of(context) as backend:
        kept = backend.notifications.keep(name, wanted, owner=owner)
        if kept.notification.kind == NotificationKind.EMAIL:
            _warn_without_mail(backend)
    tried = f"`forge notification test {quote(name)}` tries it"
    narration.say(f"notification {name} {_done(kept)}; {tried}")
    if kept.changed and kept.notification.kind == NotificationKind.WEBHOOK and not kept.secret:
        narration.say("its secret is still the same; --new-secret makes another", "dim")
    if kept.secret:
        narration.say("save the secret now: it cannot be shown again", "dim")
    output.show_one(kept, form, lambda: print(kept.secret or name))  # noqa: T201 - the data


def _warn_without_mail(backend: Backend) -> None:
    """Say that no mail leaves yet, to an admin, who may know."""
    with suppress(NotAllowed):
        if not backend.notifications.notifier().smtp:
            narration.say("no mail server is set: `forge notification setup` sets one", "yellow")


@app.command("list")
def list_notifications(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """List notifications, without their secrets."""
    with backend_of(context) as backend:
        nothing = "no notifications yet; `forge notification add NAME` makes one"
        output.show(backend.notifications.listed(), COLUMNS, form, nothing=nothing)


@app.command()
def remove(
    context: typer.Context, name: Name, owner: Owner = None, yes: SureOption = False
) -> None:
    """Remove a notification, and what it has not sent."""
    with backend_of(context) as backend:
        lost = "its secret and what it has not sent go with it"
        if any(row.name == name for row in backend.notifications.listed()):
            ask(f"Remove the notification {name}?", yes=yes, lost=lost)
        backend.notifications.remove(name, owner=owner)
    narration.say(f"notification {name} removed")


@app.command("test")
def send_a_test(
    context: typer.Context,
    name: Name,
    wait: Annotated[str, typer.Option(help="How long to wait until it is sent.")] = "30s",
    owner: Owner = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Send a message now, and say how it went."""
    with backend_of(context) as backend:
        most_s = span("--wait", wait).total_seconds()
        sent = _tried(backend, backend.notifications.test(name, owner=owner), most_s)
        if sent.state != DeliveryState.SENT:
            raise ClientError(
                f"the message has not been sent: {sent.error or _why_untold(backend, sent)}",
                hint="it stays in line; `forge notification deliveries` shows how it goes",
                code="not_sent",
                exit_code=ExitCode.FAILED,
            )
    narration.say(f"notification {name}: sent")
    output.show_one(sent, form, lambda: print(sent.id))  # noqa: T201 - the data


@app.command()
def deliveries(
    context: typer.Context,
    name: OfName = None,
    state: Annotated[
        DeliveryState | None, typer.Option(help="Only in this state; failed ones gave up.")
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="How many.")] = 50,
    form: FormatOption = Format.TABLE,
) -> None:
    """List what was sent and what is to be sent, the newest first."""
    with backend_of(context) as backend:
        rows = backend.notifications.deliveries(name=name, state=state and state.value, count=count)
    nothing = "nothing was sent, and nothing waits"
    output.show(rows, DELIVERIES, form, drop=("NEXT", "AT", "TRIES"), nothing=nothing)


@app.command()
def retry(
    context: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of deliveries.")] = None,
    name: OfName = None,
    owner: Annotated[
        str | None, typer.Option(help="Only of this owner's notifications; for admins.")
    ] = None,
) -> None:
    """Send failed deliveries again: some, or all of a notification."""
    if not ids and name is None:
        raise typer.BadParameter("name the deliveries, or a notification with --name")
    with backend_of(context) as backend:
        retried = backend.notifications.retry(name=name, ids=ids or None, owner=owner)
    failed = counted(retried, "failed delivery", "failed deliveries")
    narration.say(f"{failed} will be sent again")


@app.command()
def setup(
    context: typer.Context,
    smtp: Annotated[
        str | None, typer.Option(help="Mail server, smtp://user:password@host:587; empty for none.")
    ] = None,
    sender: Annotated[str | None, typer.Option(help="Address that e-mail comes from.")] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="Network that webhooks may reach; may be repeated. '' for none."),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show or set how notifications leave, for admins. A password is not shown again."""
    # An empty text removes what was set.
    given = {"smtp_url": smtp, "sender": sender}
    changes: dict[str, str | list[str] | None] = {
        name: value or None for name, value in given.items() if value is not None
    }
    if allow:
        changes["allow"] = [network for network in allow if network]
    with backend_of(context) as backend:
        own = backend.notifications
        now = own.set_notifier(changes) if changes else own.notifier()
    output.show_one(now, form, lambda: _print(now))


def _print(now: Notifier) -> None:
    output.fields([
        ("mail server", now.smtp or "none"),
        ("sender", now.sender),
        ("webhooks reach", ", ".join(["public addresses", *now.allow])),
    ])  # fmt: skip


def _done(kept: KeptNotification) -> str:
    if kept.changed is None:
        return "saved"
    return f"changed ({', '.join(kept.changed)})" if kept.changed else "is as it was"


def _tried(backend: Backend, sent: Delivery, wait_s: float) -> Delivery:
    """Wait until a delivery was tried, or until its time is over."""
    until = time.monotonic() + wait_s
    while sent.state == DeliveryState.WAITING and not sent.error and time.monotonic() < until:
        time.sleep(LOOK_S)
        sent = backend.notifications.delivery(sent.id)
    return sent


def _why_untold(backend: Backend, sent: Delivery) -> str:
    """Return why a delivery has no error yet."""
    if sent.tries:
        return "the receiver has not answered yet"
    if backend.overview().sweeper.healthy:
        return "the sweeper has not come to it yet"
    return "no sweeper is running; start forge-sweeper"
