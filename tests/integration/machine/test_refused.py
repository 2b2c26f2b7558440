"""A database that refuses the worker's role: at its start, and while it runs."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from forge_schema.database.pool import AccessRefused, DatabaseUnreachable, explained
from psycopg import sql
from support.workers.asked import asked
from support.workers.worker import bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.waiting import Eventually

WAITS = """
import pathlib, threading
print("up", flush=True)
while not pathlib.Path("go").exists():
    threading.Event().wait(0.05)
"""


class Role:
    """A role that an operator lets in or not."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.name = f"refused_{os.getpid()}"
        self._run("CREATE ROLE {} LOGIN SUPERUSER")

    @property
    def url(self) -> str:
        """The database's URL for this role."""
        before, _, rest = self._url.partition("postgres@")
        return f"{before}{self.name}@{rest}"

    def shut_out(self) -> None:
        """Refuse it, and end its connections."""
        self._run("ALTER ROLE {} NOLOGIN")
        self._run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{}'")

    def let_in(self) -> None:
        self._run("ALTER ROLE {} LOGIN")

    def drop(self) -> None:
        self._run("DROP ROLE {}")

    def _run(self, text: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(sql.SQL(text).format(sql.SQL(self.name)))


@contextmanager
def role(url: str) -> Iterator[Role]:
    made = Role(url)
    try:
        yield made
    finally:
        made.drop()


def test_worker_that_its_database_refuses_leaves_or_waits_quietly(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with role(database_url) as worker_role, bed("process", tmp_path, database_url) as made:
        # A sweeper would own what it makes.
        given: dict[str, Any] = {"database_url": worker_role.url, "sweep": "false"}
        made.environment = {f"FORGE_{name.upper()}": it for name, it in given.items()}
        worker_role.shut_out()
        shut_out = made.begin()
        assert shut_out.process.wait(120) == 5
        refusal = f'refuses this role: role "{worker_role.name}" is not permitted to log in'
        assert shut_out.output.count(refusal) == 1
        assert "Traceback" not in shut_out.output

        worker_role.let_in()
        worker = made.worker()
        job = made.script(WAITS)
        made.says(job, "up")
        worker_role.shut_out()
        eventually(lambda: "queue_refuses" in worker.output)
        shown = "refused by the queue, and tries again every few minutes: the database"
        eventually(lambda: shown in asked(made, "--status").stdout)
        before = len(worker.output.splitlines())
        worker_role.let_in()
        eventually(lambda: "queue_accepts" in worker.output)
        # One line says so, and nothing is logged for each try.
        assert worker.output.count("is not permitted to log in") == 1, worker.output
        assert len(worker.output.splitlines()) <= before + 3, worker.output
        for folder in worker.folder.glob("jobs/*/work"):
            (folder / "go").touch()
        made.succeeds(job)
        assert made.reasons(job) == ["succeeded"]
        assert worker.leave() == 0


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ('FATAL:  password authentication failed for user "x"', AccessRefused),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "x"', AccessRefused),
        ('FATAL:  role "x" does not exist', AccessRefused),
        ("fe_sendauth: no password supplied", AccessRefused),
        ("SSL error: certificate verify failed", AccessRefused),
        ('FATAL:  database "x" does not exist', DatabaseUnreachable),
        ("FATAL:  the database system is starting up", DatabaseUnreachable),
        ("connection refused", DatabaseUnreachable),
    ],
)
def test_only_what_a_person_must_change_is_a_refusal(
    said: str, kind: type[DatabaseUnreachable]
) -> None:
    error = psycopg.OperationalError(f'connection to server at "h", port 1 failed: {said}')
    told = explained(error, "postgresql://x@h:1/forge")
    assert type(told) is kind
    assert told.code == "database_unreachable"
