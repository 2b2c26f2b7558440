"""`forge schedule`, as a person types it: through a server, and without one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from forge_schema.access.api_keys import Keys
from forge_schema.database.pool import Database
from forge_schema.model.states import Role
from forge_schema.queue.queue import Queue
from forge_schema.sweeper.tick import Tick
from support.client.telling import told
from support.http.server import served, server_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from subprocess import CompletedProcess

    from support.client.command import Command

ADD = ("schedule", "add")
COMMAND = ("--", "python", "train.py", "--epochs", "3")


@pytest.fixture(params=["direct", "http"])
def ann(
    request: pytest.FixtureRequest, forge: Command, database_url: str, tmp_path: Path
) -> Iterator[Command]:
    (forge.cwd / "train.py").write_text("print('hello')")
    store_url = (tmp_path / "store").as_uri()
    if request.param == "direct":
        forge.env.update({"FORGE_DATABASE_URL": database_url, "FORGE_STORE_URL": store_url})
        yield forge
        return
    with (
        Database(database_url) as database,
        served(server_settings(database_url, store_url)) as url,
    ):
        made = Keys(database, actor="user:root").create("ann", Role.SUBMITTER)[1]
        forge.env.update({"FORGE_URL": url, "FORGE_API_KEY": made})
        yield forge


def shows(done: CompletedProcess[str], *said: str) -> None:
    assert done.returncode == 0, done.stderr
    for text in said:
        assert text in done.stdout + done.stderr


def test_a_schedule_from_its_first_day_to_its_last(ann: Command, database_url: str) -> None:
    shows(ann(*ADD, "0 3 * * *", "--name", "x", "--dry-run", *COMMAND), "nothing was submitted")
    assert json.loads(ann("schedule", "list", "-o", "json").stdout) == []
    done = ann(
        *ADD, "0 3 * * 1-5", "--name", "nightly", "--timezone", "Europe/Berlin", "--gpu", "1",
        "--label", "zone=eu*", "--env", "A=b", "--no-overlap", *COMMAND,
    )  # fmt: skip
    shows(done, "packed 1 file", "schedule 'nightly': next at", " 03:00+0")
    assert done.stdout == "nightly\n"
    shows(ann("schedule", "list"), "nightly", "0 3 * * 1-5", "Europe/Berlin", "in ")
    shown = ann("schedule", "show", "nightly")
    shows(shown, "a time is left out", "python train.py --epochs 3", "gpus=1")
    kept = json.loads(ann("schedule", "show", "nightly", "-o", "json").stdout)
    assert len(kept["next_times"]) == 3
    assert (kept["spec"]["env"], kept["spec"]["labels"]) == ({"A": "b"}, {"zone": "eu*"})
    shows(ann("schedule", "pause", "nightly"), "nightly paused")
    shows(ann("schedule", "list"), "paused")
    shows(ann("schedule", "resume", "nightly"), "nightly resumed")
    job = _fire(database_url)
    shows(ann("show", job), "schedule nightly, due ", "schedule:nightly")
    shows(ann("explain", job), "submitted by", "schedule nightly, due ")
    shows(ann("schedule", "show", "nightly"), "last job", f"{job}, queued")
    told(ann("schedule", "run", "nightly"), 4, f"job {job} of the schedule", f"cancel {job}")
    ann("cancel", job)
    planned = json.loads(ann("schedule", "run", "nightly", "--dry-run", "-o", "json").stdout)
    assert planned["job"]["command"][-1] == "3"
    by_hand = ann("schedule", "run", "nightly")
    shows(by_hand, "'nightly' is queued")
    shows(ann("show", by_hand.stdout.strip()), "schedule nightly, due ")
    shows(ann(*ADD, "0 4 * * *", "--name", "nightly", *COMMAND), "saved over the one before: next")
    shows(ann("schedule", "remove", "nightly", "--yes"), "removed")
    told(ann("schedule", "show", "nightly"), 3, "ann has no schedule 'nightly'", "schedule list")


def _fire(database_url: str) -> str:
    with Database(database_url) as database:
        with database.connection() as connection:
            connection.execute("UPDATE schedule SET next_at = date_trunc('minute', forge_now())")
        assert Tick(Queue(database, actor="sweeper")).fire() == 1
        return str(database.rows("schedules", scope=None, name=None)[0]["last_job_id"])


def test_a_wrong_schedule_is_refused_before_the_upload_and_says_what_to_write(
    ann: Command, tmp_path: Path
) -> None:
    said = ("--name", "n", *COMMAND)
    told(ann(*ADD, "0 3 * *", *said), 2, "it needs 5 fields, not 4", "0 3 * * 1-5")
    told(ann(*ADD, "0 0 30 2 *", *said), 2, "never falls due", "a day that the month has")
    zone = ("--timezone", "Europe/Berlim", *said)
    told(ann(*ADD, "0 3 * * *", *zone), 2, "no time zone 'Europe/Berlim'", "Europe/Berlin?")
    nameless = ann(*ADD, "0 3 * * *", *COMMAND)
    assert (nameless.returncode, "--name" in nameless.stderr) == (2, True)
    told(ann(*ADD, "0 3 * * *", "--name", "n"), 2, "command")
    assert json.loads(ann("schedule", "list", "-o", "json").stdout) == []
    assert not list((tmp_path / "store").rglob("*.tar.zst"))
