"""`forge notification`, as a person types it."""

from __future__ import annotations

import json
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest
from forge_schema.database.pool import Database
from forge_schema.notifications.sender import DeliverySender
from support.client.telling import told
from support.notifications.receivers import receiver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.client.command import Command

NOTE = "notification"


@pytest.fixture
def ann(forge: Command, database_url: str, tmp_path: Path) -> Command:
    store_url = (tmp_path / "store").as_uri()
    forge.env.update({"FORGE_DATABASE_URL": database_url, "FORGE_STORE_URL": store_url})
    return forge


@pytest.fixture
def sending(database_url: str) -> Iterator[None]:
    """Send what is due all the time."""
    over = Event()
    with Database(database_url) as database:
        sender = DeliverySender(database, threads=1)

        def send() -> None:
            while not over.wait(0.05):
                sender.begin()

        thread = Thread(target=send)
        thread.start()
        yield
        over.set()
        thread.join()
        sender.end()


@pytest.mark.usefixtures("sending")
def test_a_notification_from_its_first_day_to_its_last(ann: Command) -> None:
    with receiver() as hook:
        done = ann(NOTE, "add", "ops", "--webhook", hook.url, "--on", "failed", "-q", "name:train*")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("whsec_")
        done = ann(NOTE, "add", "ops", "--on", "failed", "--on", "stalled")
        assert done.stdout == "ops\n"
        assert "notification ops changed (events)" in done.stderr
        refused = ann(NOTE, "test", "ops")
        told(refused, 1, "has no public address", "forge notification deliveries")
        listed = ann(NOTE, "list").stdout
        assert "failed" in listed
        assert "name:train*" in listed
        assert hook.url not in listed
        done = ann(NOTE, "setup", "--allow", "127.0.0.1", "--sender", "forge@example.com")
        assert "public addresses, 127.0.0.1" in done.stdout
        sent = ann(NOTE, "test", "ops", "-o", "json")
        assert json.loads(sent.stdout)["state"] == "sent", sent.stderr
        assert hook.types[0] == "test"
    shown = json.loads(ann(NOTE, "deliveries", "-o", "json").stdout)
    # The one that could not be sent was given up for it.
    assert [(one["event"], one["state"]) for one in shown] == [("test", "sent")]
    assert "0 failed deliveries will be sent again" in ann(NOTE, "retry", "--name", "ops").stderr
    assert ann(NOTE, "remove", "ops", "--yes").returncode == 0
    told(ann(NOTE, "remove", "ops"), 3, "no notification 'ops'", "forge notification list")
    told(ann(NOTE, "add", "ops"), 3, "no notification 'ops'", "--slack URL or --email")
