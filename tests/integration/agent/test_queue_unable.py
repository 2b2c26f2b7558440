"""A reachable queue that cannot do anything, and workers that leave while they wait for one."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from time import time
from typing import TYPE_CHECKING

import psycopg
import pytest
from forge_schema.database.pool import DatabaseUnreachable, NotMigrated
from forge_schema.model.lease import End
from forge_schema.model.states import Phase, Reason
from forge_worker.agent import crashes
from forge_worker.agent.crashes import Crashes
from forge_worker.agent.outbox import FILE, HELD_S, Outbox, Spool
from forge_worker.agent.registration import until_answered
from forge_worker.job_runs.leftovers import take_up
from forge_worker.queue.http.session import ServerRefused
from forge_worker.runners.process.runner import ProcessRunner
from psycopg import sql
from structlog.testing import capture_logs
from support.workers.attempts import attempt_of, desk
from support.workers.worker import Worker, bed, containers_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.waiting import Eventually

WAITS = """
import os, pathlib, threading
print("up", flush=True)
while os.environ["FORGE_ATTEMPT"] == "1" and not pathlib.Path("go").exists():
    threading.Event().wait(0.05)
"""
NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
OTHERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> ALL (%s::int[])
"""


def pids(plain: psycopg.Connection) -> list[int]:
    query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
    return [pid for (pid,) in plain.execute(query).fetchall()]


@contextmanager
def standby(url: str, spared: list[int] | None = None) -> Iterator[None]:
    """Make a database refuse writes on new connections; all but the spared must reconnect."""
    with psycopg.connect(url, autocommit=True) as plain:
        name = sql.Identifier(plain.info.dbname)
        says = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name)
        plain.execute(says)
        plain.execute(OTHERS, [[*(spared or []), plain.info.backend_pid]])
        yield
        # Connections made meanwhile stay as they are.
        plain.execute("SET default_transaction_read_only = off")
        plain.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name))


def test_job_that_ends_before_a_standby_counts_once_that_takes_writes(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with bed("process", tmp_path, database_url) as made:
        made.database.row("health")
        with psycopg.connect(database_url, autocommit=True) as plain:
            spared = pids(plain)
        worker = made.worker(lease_ttl_s=60, reconnect_limit_s=1)
        job = made.script(WAITS)
        made.says(job, "up")
        with standby(database_url, spared):
            (folder,) = worker.folder.glob(f"jobs/{job}-*")
            (folder / "work" / "go").touch()
            eventually(lambda: "end_spooled" in worker.output)
            eventually(lambda: "takes no writes" in worker.output)
            assert [end.reason for end in Spool(worker.folder / FILE, 1).ends()] == [
                Reason.SUCCEEDED
            ]
        made.succeeds(job)
        assert made.reasons(job) == ["succeeded"]
        assert "Traceback" not in worker.output


def test_database_that_lacks_something_is_waited_for_but_at_the_start(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    renamed = "ALTER TABLE attempt RENAME COLUMN {} TO {}"
    with desk(database_url, tmp_path) as made, psycopg.connect(database_url) as plain:
        attempt, outbox = made.attempt(), Outbox(made.gateway, Spool(tmp_path / FILE, 1))
        plain.execute(renamed.format("detail", "later"))
        plain.commit()
        end = End(attempt.fence, Reason.SUCCEEDED, 0)
        with pytest.raises(NotMigrated, match="must be upgraded") as lacks:
            made.gateway.finish([end])
        assert "forge db upgrade" in lacks.value.hint
        with pytest.raises(NotMigrated):
            until_answered(lambda: made.gateway.finish([end]), limit_s=1)
        assert outbox.keep(end)
        outbox.step()
        assert outbox.held() == [attempt.fence]
        plain.execute(renamed.format("later", "detail"))
        plain.commit()
        outbox.step()
        assert outbox.spool.ends() == []
        assert made.gateway.finish([end])[0].accepted
        with standby(database_url):
            # Its connections were closed: its first statement finds that out.
            with pytest.raises(DatabaseUnreachable):
                made.gateway.report(attempt.fence, Phase.RUNNING)
            with pytest.raises(DatabaseUnreachable, match="takes no writes"):
                made.gateway.report(attempt.fence, Phase.RUNNING)

        def goes_on() -> bool:
            # Each connection made while it was a standby is discarded when it is used.
            with suppress(DatabaseUnreachable):
                made.gateway.report(attempt.fence, Phase.RUNNING)
                made.attempt()
                return True
            return False

        assert eventually(goes_on)


def test_end_that_the_queue_fails_at_is_kept_and_its_lease_not_for_ever(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    with desk(database_url, tmp_path) as made:
        fences = [made.attempt().fence for _ in range(2)]
        faults = iter([ValueError("x"), ServerRefused("x"), ValueError("x"), ValueError("x")])

        def failing(_: object) -> None:
            raise next(faults)

        outbox = Outbox(made.gateway, Spool(tmp_path / FILE, 2), clock=lambda: now[0])
        for fence in fences:
            assert outbox.keep(End(fence, Reason.SUCCEEDED, 0))
        with monkeypatch.context() as broken, capture_logs() as said:
            broken.setattr(made.gateway, "finish", failing)
            outbox.step()
            now[0] = HELD_S - 1
            outbox.step()
            assert outbox.held() == fences[:1]
            now[0] = HELD_S
            outbox.step()
        assert [one["event"] for one in said] == [
            "end_not_delivered",
            "end_rejected",
            *["end_not_delivered"] * 2,
        ]
        assert [one.get("held") for one in said] == [True, None, True, False]
        assert outbox.held() == []
        assert outbox.spool.fences() == fences[:1]
        outbox.step()
        assert outbox.spool.ends() == []


def test_start_gives_back_no_lease_whose_end_waits(tmp_path: Path, database_url: str) -> None:
    jobs = tmp_path / "worker" / "jobs"
    jobs.mkdir(parents=True)
    with desk(database_url, tmp_path) as made:
        waits, other = made.attempt(), made.attempt()
        for attempt in (waits, other):
            attempt_of(attempt.grant, jobs / f"{attempt.fence.token}")
        runners = [ProcessRunner()]
        assert take_up(jobs, runners, made.gateway, spooled=[waits.fence]) == []
        assert list(jobs.iterdir()) == []
        ends = [End(one.fence, Reason.SUCCEEDED, 0) for one in (waits, other)]
        told = made.gateway.finish(ends)
        assert [one.reason for one in told] == [Reason.SUCCEEDED, Reason.WORKER_LOST]


def crashed(worker_dir: Path) -> None:
    worker_dir.mkdir()
    crashes._keep(worker_dir, Crashes(9, "on fire", time(), ended=True))


def left_well(worker: Worker, said: str, eventually: Eventually) -> None:
    eventually(lambda: said in worker.output)
    assert worker.leave() == 0
    assert not (worker.folder / crashes.FILE).exists()
    assert "Traceback" not in worker.output


def test_worker_that_waits_leaves_in_good_order(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with bed("process", tmp_path, database_url) as made:
        waits = made.begin(database_url=NOWHERE, reconnect_limit_s=60)
        left_well(waits, "queue_unreachable", eventually)
        crashed(tmp_path / "two")
        pauses = made.begin("two", crash_limit_s=600)
        left_well(pauses, "start_delayed", eventually)


def test_strict_worker_that_waits_leaves_nothing_running(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with bed("docker", tmp_path, database_url) as made:
        first = made.worker(lease_policy="strict", lease_ttl_s=60)
        job = made.script(WAITS, max_losses=1)
        made.says(job, "up")
        first.kill()
        assert containers_of(made.token)
        second = made.begin(lease_policy="strict", database_url=NOWHERE)
        eventually(lambda: not containers_of(made.token))
        assert second.leave() == 0
        made.worker(lease_policy="strict", lease_ttl_s=60)
        made.succeeds(job)
        assert made.reasons(job) == ["worker_lost", "succeeded"]
