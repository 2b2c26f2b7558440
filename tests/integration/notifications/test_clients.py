"""Notifications through both backends and the SDK."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from forge_client import Client, ClientError
from forge_client.cli.plans.notifications import _next, _tried, _why_untold
from forge_schema.model.notifications import Delivery
from forge_schema.notifications.sender import PAUSES_S, DeliverySender
from forge_schema.sweeper.sweeper import Sweeper
from support.client.reaching import WAYS, reaching
from support.notifications.receivers import receiver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.queue.rig import Rig


@pytest.fixture(params=WAYS)
def client(request: pytest.FixtureRequest, rig: Rig, tmp_path: Path) -> Iterator[Client]:
    with reaching(request.param, rig, (tmp_path / "store").as_uri()) as client:
        yield client


def test_a_notification_is_added_tried_listed_and_removed(client: Client, rig: Rig) -> None:
    with receiver() as hook:
        kept = client.add_notification("a/b c", webhook=hook.url, query="name:x", events=["failed"])
        assert (kept.secret or "").startswith("whsec_")
        assert client.add_notification("a/b c", new_secret=True).secret != kept.secret
        changed = client.add_notification("a/b c", events=["failed", "stalled"])
        assert (changed.changed, changed.secret) == (["events"], None)
        assert (changed.notification.query, kept.changed) == ("name:x", None)
        assert client.set_notifier({"allow": ["127.0.0.0/8"]}).allow
        assert client.notifier().allow == ["127.0.0.0/8"]
        sender = DeliverySender(rig.database, threads=1)
        sweeper = Sweeper(rig.tick, period_s=10, sender=sender)
        hook.answers += [500] * (len(PAUSES_S) + 1)
        sent = client.test_notification("a/b c")
        assert "the sweeper has not come to it" in _why_untold(client.backend, sent)
        rig.rows("UPDATE sweeper SET ticked_at = NULL")
        assert "no sweeper is running" in _why_untold(client.backend, sent)
        # One that only watches sends nothing.
        sweeper.send()
        sender.wait()
        assert hook.calls == []
        sweeper.tick()
        for pause in [*PAUSES_S, 1]:
            sweeper.send()
            sender.wait()
            rig.clock.advance(pause)
        (failed,) = client.deliveries(state="failed", name="a/b c")
        assert failed.id == sent.id
        (listed,) = client.notifications()
        assert (listed.name, listed.failed, listed.query) == ("a/b c", 1, "name:x")
        assert listed.error == "the receiver answered 500"
        assert client.retry_deliveries(name="a/b c") == 1
        sweeper.send()
        sender.wait()
        assert _tried(client.backend, sent, 0).state == "waiting"
        assert client.delivery(sent.id).state == "sent"
        assert client.deliveries(before=sent.id) == []
        sender.end()
    client.remove_notification("a/b c")
    assert client.notifications() == []


def test_an_admin_names_the_owner_of_a_notification(client: Client) -> None:
    client.add_notification("cin", email="cin@example.com", owner="cin")
    assert [one.owner for one in client.notifications()] == ["cin"]
    with pytest.raises(ClientError, match="no notification 'cin'") as refused:
        client.test_notification("cin")
    assert "--owner" in str(refused.value.hint)
    assert client.test_notification("cin", owner="cin").owner == "cin"
    assert client.retry_deliveries(name="cin", owner="bob") == 0
    client.remove_notification("cin", owner="cin")
    assert client.notifications() == []


def test_what_is_wrong_is_said(client: Client) -> None:
    for code, exit_code, act in (
        ("notification_invalid", 2, lambda: client.add_notification("n", webhook="ftp://x")),
        ("notification_not_found", 3, lambda: client.add_notification("n")),
        ("invalid_input", 2, lambda: client.add_notification("n", slack="x", email="a@b")),
        ("filter_invalid", 2, lambda: client.add_notification("n", email="a@b", query="nam:x")),
        ("spec_invalid", 2, lambda: client.add_notification("n", email="a@b", events=["odd"])),
        ("notification_not_found", 3, lambda: client.test_notification("n")),
        ("notification_not_found", 3, lambda: client.remove_notification("n")),
        ("delivery_not_found", 3, lambda: client.delivery(str(UUID(int=7)))),
    ):
        with pytest.raises(ClientError) as refused:
            act()
        assert (refused.value.code, refused.value.exit_code) == (code, exit_code)


def test_a_message_that_is_overdue_is_tried_now() -> None:
    moment = datetime.now(UTC)
    said = {"id": "1", "notification": "n", "owner": "ann", "event": "test", "at": moment}
    one = Delivery.model_validate({**said, "state": "waiting", "tries": 0})
    assert _next(one.model_copy(update={"next_at": moment})) == "now"
    assert _next(one.model_copy(update={"next_at": moment + timedelta(days=2)})).startswith("in ")
    assert _next(one) == ""
