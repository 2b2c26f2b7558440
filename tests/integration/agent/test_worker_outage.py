"""Outages of the database while jobs end, while an agent starts, and while a lease expires."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from forge_schema.database.pool import Database, DatabaseUnreachable
from forge_schema.model.lease import End, Ended, Fence
from forge_schema.model.spec import Resources
from forge_schema.model.states import Phase, Reason, Standing, WorkerStatus
from forge_worker.agent import crashes
from forge_worker.agent.agent import Agent
from forge_worker.agent.outbox import FILE, Outbox, Spool, left_in
from forge_worker.agent.registration import NotWaited, until_answered
from forge_worker.circuit_breaker import CircuitBreaker, CircuitOpen, ServerUnreachable
from forge_worker.clock import seconds
from forge_worker.commands.recovery import recover
from forge_worker.commands.status import look
from forge_worker.job_runs import job_state
from forge_worker.job_runs.leftovers import MOST_HASTY, take_up
from forge_worker.machine.slots import MachineSlot
from forge_worker.queue.gateway import SqlGateway
from forge_worker.queue.http.gateway import HttpGateway
from forge_worker.queue.http.session import ServerFailed, ServerRefused, TokenRefused
from forge_worker.runners.choice import Runners
from forge_worker.runners.process.runner import ProcessRunner
from forge_worker.runners.runner import Exit
from forge_worker.settings.settings import WorkerSettings
from structlog.testing import capture_logs
from support.database.crashing_server import CrashingServer, bed_on, crashing_server
from support.http.http_worker import machine, session
from support.store.storage import CREDENTIALS, moto_server, new_bucket, proxy, use_credentials
from support.workers.attempts import Desk, attempt_of, desk
from support.workers.worker import Worker, bed, processes_below

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

    from support.http.api import Api
    from support.waiting import Eventually

# Ends when told; with an argument, it writes output and files at its end.
WAITS = """
import os, pathlib, sys, threading
print("up", flush=True)
while os.environ["FORGE_ATTEMPT"] == "1" and not pathlib.Path("go").exists():
    threading.Event().wait(0.05)
if sys.argv[1:]:
    pathlib.Path(os.environ["FORGE_OUTPUT_DIR"], "result").write_text("good")
    print(*sys.argv[1:], flush=True)
"""
# Kills each agent that has it, whose process the lock file of its folder names.
KILLS = """
import json, os, signal, sys, threading
seen = None
while True:
    adoptions = json.loads(open("../places").read()).get("adoptions", 0)
    if adoptions != seen:
        seen = adoptions
        os.kill(int(open(sys.argv[1]).read()), signal.SIGKILL)
    threading.Event().wait(0.02)
"""
# A lease that outlives the outage, even on a busy machine.
LASTS: dict[str, Any] = {"lease_ttl_s": 60}


@pytest.fixture
def crashing() -> Iterator[CrashingServer]:
    with crashing_server() as server:
        yield server


@pytest.fixture
def counter(tmp_path: Path, database_url: str) -> Iterator[Desk]:
    with desk(database_url, tmp_path) as made:
        yield made


def let_go(worker: Worker, job: int) -> None:
    (folder,) = worker.folder.glob(f"jobs/{job}-*")
    (folder / "work" / "go").touch()


def end_is_kept(worker: Worker, job: int) -> bool:
    (folder,) = worker.folder.glob(f"jobs/{job}-*")
    return job_state.kept_exit(folder) is not None


def spooled(worker: Worker, job: int) -> bool:
    """Tell whether a job's end is spooled, and its folders on the machine are gone."""
    waits = "end_spooled" in worker.output
    return waits and not list(worker.folder.glob(f"jobs/{job}-*"))


def test_jobs_that_end_while_the_database_is_away(
    crashing: CrashingServer, tmp_path: Path, eventually: Eventually
) -> None:
    with bed_on(crashing, tmp_path) as made:
        one = made.worker("one", labels="on=one", **LASTS)
        two = made.worker("two", labels="on=two", ephemeral=True, **LASTS)
        strict = made.worker("strict", labels="on=strict", lease_policy="strict")
        quiet = made.script(WAITS, labels={"on": "one"})
        loud = made.script(WAITS, "end", labels={"on": "one"})
        stays = made.script(WAITS, labels={"on": "two"})
        held = made.script(WAITS, labels={"on": "strict"}, max_losses=1, grace_s=1)
        for job in (quiet, loud, stays, held):
            made.says(job, "up")
        crashing.crash()
        for worker, job in ((one, quiet), (one, loud), (two, stays)):
            let_go(worker, job)
        eventually(lambda: spooled(one, quiet) and spooled(two, stays))
        eventually(lambda: end_is_kept(one, loud))
        # The job does not run on after its lease has expired.
        eventually(lambda: not processes_below([str(strict.folder / "jobs")]))
        assert "job_stopped_lease_unrenewed" in strict.output
        # It has nothing else to do, but does not leave before it has reported that end.
        assert two.running
        one.kill()
        again = made.begin("one", labels="on=one", **LASTS)
        eventually(lambda: "queue_unreachable" in again.output)
        crashing.start()
        for job in (quiet, loud, stays, held):
            made.succeeds(job)
        for job in (quiet, loud, stays):
            assert made.reasons(job) == ["succeeded"]
        assert made.reasons(held) == ["worker_lost", "succeeded"]
        assert made.log(loud) == b"up\nend\n"
        assert made.artifacts(loud) == {"result": b"good"}
        assert two.process.wait(120) == 0
        for worker in (again, two, strict):
            assert "Traceback" not in worker.output
            assert Spool(worker.folder / FILE, 1).ends() == []


def test_job_that_kills_its_agent_again_and_again_is_dead_and_others_go_on(
    tmp_path: Path, database_url: str
) -> None:
    settings: dict[str, Any] = {**LASTS, "labels": "on=one", "crash_limit_s": 1}
    all_of_it = Resources(cpus=4, memory_mb=256, disk_mb=500)
    with bed("process", tmp_path, database_url) as made:
        made.worker("other", labels="on=other")
        lock = str(tmp_path / "one" / "lock")
        here = {"on": "one"}
        poison = made.script(KILLS, lock, labels=here, resources=all_of_it)
        after = made.script("print('fine')", labels=here)
        for _ in range(1 + MOST_HASTY):
            agent = made.begin(**settings)
            agent.process.wait(120)
            made.succeeds(made.script("print('goes on')", labels={"on": "other"}))
        last = made.worker(**settings)
        assert made.ended(poison)["state"] == "dead"
        assert made.reasons(poison) == ["worker_lost"]
        made.succeeds(after)
        assert "start_delayed" in last.output
        told = crashes.summary(last.folder)
        assert (told["bad_ends"], told["why"]) == (1 + MOST_HASTY, crashes.KILLED)
        assert last.leave() == 0
        assert crashes.summary(last.folder) == {}


def test_attempt_that_no_agent_outlives_is_given_back(counter: Desk, tmp_path: Path) -> None:
    grant = counter.attempt().grant
    jobs = tmp_path / "worker" / "jobs"
    jobs.mkdir(parents=True)
    attempt = attempt_of(grant, jobs / "7-1-1")
    job_state.record_of(attempt, MachineSlot(1, 1, 1), "process", "none").write()
    job_state.keep_exit(attempt.folders.root, Exit(0))
    for _ in range(MOST_HASTY):
        (found,) = take_up(jobs, [ProcessRunner()], counter.gateway)
        assert found.handle.wait(0) == Exit(0)
    assert take_up(jobs, [ProcessRunner()], counter.gateway) == []
    (ended,) = counter.gateway.finish([End(grant.fence, Reason.WORKER_LOST)])
    assert (ended.accepted, ended.reason) == (True, Reason.WORKER_LOST)
    assert list(jobs.iterdir()) == []


def test_renewal_covers_what_runs_and_what_waits_to_be_told(
    counter: Desk, database_url: str, tmp_path: Path
) -> None:
    runs, waits = counter.attempt(), counter.attempt()
    runs.renewed_s = 0.0
    given: dict[str, Any] = {"store_url": tmp_path.as_uri(), "worker_dir": tmp_path}
    settings = WorkerSettings(database_url=database_url, **given)
    runners = Runners(None, ProcessRunner(), "")
    agent = Agent(settings, counter.gateway, lambda _: counter.store, runners)
    agent.running.add(runs)
    assert agent.outbox.keep(End(waits.fence, Reason.SUCCEEDED, 0))
    expiries = "SELECT job_id, expires_at FROM lease ORDER BY job_id"
    with counter.database.connection() as connection:
        before = connection.execute(expiries).fetchall()
        sent_s = seconds()
        agent.lease_renewal.step()
        after = connection.execute(expiries).fetchall()
    assert all(
        old["expires_at"] < new["expires_at"] for old, new in zip(before, after, strict=True)
    )
    assert sent_s <= runs.renewed_s <= seconds()
    # The queue answers again, so the outbox reports the end now.
    assert agent.outbox._woken.is_set()


def test_a_start_waits_for_the_queue_until_it_is_told_to_leave() -> None:
    faults: list[Exception] = [DatabaseUnreachable("x"), DatabaseUnreachable("x")]

    def step() -> str:
        if faults:
            raise faults.pop()
        return "answered"

    assert until_answered(step, limit_s=0.01) == "answered"
    faults.append(TokenRefused("x"))
    with pytest.raises(TokenRefused):
        until_answered(step, limit_s=0.01)
    leaving = Event()
    leaving.set()
    faults.append(DatabaseUnreachable("x"))
    with pytest.raises(NotWaited):
        until_answered(step, limit_s=60, leaving=leaving)


def test_outbox_tells_what_waits_and_says_what_came_too_late(counter: Desk, tmp_path: Path) -> None:
    good, late = counter.attempt().fence, counter.attempt().fence
    counter.gateway.finish([End(late, Reason.WORKER_LOST)])
    spool = Spool(tmp_path / FILE, 3)
    outbox = Outbox(counter.gateway, spool)
    for fence in (late, good, Fence(good.job_id, good.token, uuid4())):
        assert outbox.keep(End(fence, Reason.SUCCEEDED, 0))
    with capture_logs() as said:
        outbox.step()
    assert [one["accepted"] for one in said] == [False, True, False]
    assert said[0]["event"] == "end_too_late"
    assert spool.ends() == []
    # Reported once more, as after a crash in between, it gets the same answer.
    assert outbox.keep(End(good, Reason.SUCCEEDED, 0))
    with capture_logs() as said:
        outbox.step()
    assert said[0]["accepted"]


def test_outbox_is_not_held_up_by_one_that_cannot_be_told(
    counter: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fences = [counter.attempt().fence for _ in range(3)]
    finish = counter.gateway.finish
    faults: dict[Fence, Exception] = {fences[0]: ServerFailed("x"), fences[1]: ServerRefused("x")}

    def failing(ends: list[End]) -> list[Ended]:
        if (fence := ends[0].fence) in faults:
            raise faults[fence]
        return finish(ends)

    monkeypatch.setattr(counter.gateway, "finish", failing)
    outbox = Outbox(counter.gateway, Spool(tmp_path / FILE, 3))
    for fence in fences:
        outbox.keep(End(fence, Reason.SUCCEEDED, 0))
    with capture_logs() as said:
        outbox.step()
    assert [one["event"] for one in said] == ["end_not_delivered", "end_rejected", "job_ended"]
    assert outbox.spool.fences() == fences[:1]
    # While the queue is away, nothing is lost.
    faults[fences[0]] = DatabaseUnreachable("x")
    with pytest.raises(DatabaseUnreachable):
        outbox.step()
    assert outbox.spool.fences() == fences[:1]


def test_recovery_tells_what_waits_before_it_gives_back(counter: Desk, tmp_path: Path) -> None:
    folder = tmp_path / "worker"
    grant = counter.attempt().grant
    attempt_of(grant, folder / "jobs" / "left")
    Spool(folder / FILE, 1).put(End(grant.fence, Reason.SUCCEEDED, 0))
    given: dict[str, Any] = {
        "recover": True,
        "database_url": counter.database.url,
        "store_url": (tmp_path / "store").as_uri(),
        "worker_dir": folder,
        "worker_name": "desk",
        "runner": "process",
    }
    settings = WorkerSettings(**given)
    assert look(settings)["untold"] == [grant.fence.job_id]
    assert "results delivered to the queue: 1; still waiting: 0" in recover(settings)
    (ended,) = counter.gateway.finish([End(grant.fence, Reason.SUCCEEDED, 0)])
    assert ended.accepted
    assert left_in(folder) is None


@pytest.mark.parametrize(
    ("cause", "away"),
    [
        (psycopg.errors.AdminShutdown(), True),
        (psycopg.errors.TooManyConnections(), True),
        (psycopg.OperationalError("no answer"), True),
        (psycopg.errors.ReadOnlySqlTransaction(), True),
        (psycopg.errors.LockNotAvailable(), False),
        (psycopg.errors.DeadlockDetected(), False),
        (psycopg.errors.QueryCanceled(), False),
    ],
)
def test_statement_that_failed_is_an_answer(cause: Exception, *, away: bool) -> None:
    breaker = CircuitBreaker("the database", longest_pause_s=60)
    expected = [ServerUnreachable, CircuitOpen] if away else [DatabaseUnreachable] * 2
    for kind in expected:
        with pytest.raises(DatabaseUnreachable) as failed, breaker.guard():
            raise DatabaseUnreachable("x") from cause
        assert type(failed.value) is kind


def test_renewal_waits_for_no_other_statement(counter: Desk, database_url: str) -> None:
    breaker = CircuitBreaker("the database", longest_pause_s=1)
    with (
        Database(database_url, size=1, patience_s=0.2, guard=breaker.guard) as busy,
        Database(database_url, size=1) as own,
    ):
        gateway = SqlGateway(busy, name="desk", ttl=counter.gateway.queue.ttl, renewals=own)
        gateway.register(machine())
        fence = counter.attempt().fence
        with busy.connection():
            with pytest.raises(ServerUnreachable):
                gateway.report(fence, Phase.RUNNING)
            # For a moment, other calls do not even try.
            with pytest.raises(CircuitOpen):
                gateway.report(fence, Phase.RUNNING)
            renewal = gateway.renew([fence], WorkerStatus.BUSY)
        assert renewal.standings == {fence: Standing.OK}


def test_heartbeat_waits_for_no_other_request(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forge_schema.http_client.LIMITS.max_connections", 1)
    _, token = api.workers.create("w")
    with session([api.url], token) as opened:
        gateway = HttpGateway(opened)
        told = gateway.register(machine())
        assert told.lease_ttl_s
        stream = opened.client.stream(
            "GET", f"{api.url}/api/v1/workers/stream", headers={"X-Worker-Token": token}
        )
        with stream:
            gateway.renew([], WorkerStatus.IDLE)


class Hangs:
    """Leaves every upload of a job unanswered until told to go on."""

    def __init__(self) -> None:
        self.came, self.go = Event(), Event()

    def __call__(self, handler: BaseHTTPRequestHandler, _body: bytes) -> bool:
        if handler.command == "PUT" and "/jobs/" in handler.path:
            self.came.set()
            self.go.wait(60)
        return False


def test_leases_are_renewed_while_uploads_hang(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    use_credentials(monkeypatch)
    with (
        moto_server() as endpoint,
        new_bucket(endpoint) as bucket,
        proxy(endpoint) as slow,
        bed("process", tmp_path, database_url, bucket.url(slow.url), CREDENTIALS) as made,
    ):
        slow.fault = hangs = Hangs()
        made.worker()
        job = made.script("print('said')")
        assert hangs.came.wait(60)
        renewed = "SELECT expires_at - claimed_at > interval '16 s' AS longer FROM lease"
        with made.database.connection() as connection:
            eventually(lambda: [row["longer"] for row in connection.execute(renewed)] == [True])
        hangs.go.set()
        made.succeeds(job)
        assert made.reasons(job) == ["succeeded"]
