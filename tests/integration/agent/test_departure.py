"""A worker that leaves: the jobs on their way to it, and those that return to the queue."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.spec import JobSpec
from forge_schema.model.states import Command, Reason
from forge_schema.queue.lanes import Lanes
from forge_schema.read.jobs import Jobs
from forge_schema.wake import Hint
from forge_worker.agent.agent import Agent
from forge_worker.agent.leaving import Shutdown
from forge_worker.agent.outbox import FILE, Outbox, Spool
from forge_worker.agent.registration import WorkerIdentity
from forge_worker.attempt import LiveAttempt, Stop
from forge_worker.clock import Window
from forge_worker.connect import connect
from forge_worker.machine.watched import UNSAFE
from forge_worker.queue.hints import Listener
from forge_worker.runners.choice import available
from forge_worker.settings.settings import WorkerSettings
from forge_worker.spot import Notice, NoticeKind
from support.workers.attempts import desk
from support.workers.worker import SMALL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forge_schema.model.lease import End, Ended
    from support.queue.rig import Rig
    from support.waiting import Eventually

NOTICES = [Notice("aws", NoticeKind.INTERRUPTION, 60.0), Notice("aws", NoticeKind.REBALANCE)]


@contextmanager
def agent(root: Path, database_url: str, held: Event, go: Event) -> Iterator[tuple[Agent, Any]]:
    """Make an agent whose claims are answered only when the test says so."""
    (root / "store").mkdir()
    (root / "worker").mkdir()
    given: dict[str, Any] = {
        "database_url": database_url,
        "store_url": (root / "store").as_uri(),
        "worker_dir": root / "worker",
        "worker_name": f"w-{uuid.uuid4().hex[:8]}",
        "runner": "process",
        "allow_processes": True,
        "cpus": 2,
        "memory_mb": 1024,
        "poll_s": 0.2,
    }
    settings = WorkerSettings(**given)
    with connect(settings) as transport:
        claim = transport.gateway.finish_and_claim

        def late(*args: Any) -> Any:  # noqa: ANN401  passed on as they are
            answer = claim(*args)
            if answer[1]:
                held.set()
                go.wait(60)
            return answer

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(transport.gateway, "finish_and_claim", late)
            yield (
                Agent(settings, transport.gateway, transport.objects, available(settings)),
                transport.gateway,
            )


@pytest.mark.parametrize("notice", NOTICES, ids=["interruption", "rebalance"])
def test_what_a_claim_on_its_way_grants_goes_back_at_once_and_free_of_charge(
    tmp_path: Path, database_url: str, notice: Notice, eventually: Eventually
) -> None:
    held, go = Event(), Event()
    with agent(tmp_path, database_url, held, go) as (made, gateway):
        (job,) = gateway.queue.submit(
            [JobSpec(name="j", owner="ann", command=["true"], resources=SMALL)]
        )
        works = Thread(target=made.run)
        works.start()
        try:
            assert held.wait(60)
            made.leaving.heed(notice)
            assert made.state.document()["draining"] == (notice.kind is NoticeKind.INTERRUPTION)
            go.set()
            jobs = Jobs(gateway.queue.database)
            ends = eventually(lambda: jobs.attempts(job))
            # A worker that stays looks for work again, but takes none.
            made.claim_loop.step()
            assert jobs.attempts(job) == ends
            if notice.kind is NoticeKind.REBALANCE:
                made.leaving.heed(Notice("aws", NoticeKind.WITHDRAWN))
                eventually(lambda: jobs.job(job)["state"] == "succeeded")
        finally:
            go.set()
            made.leaving.stop()
            works.join(60)
        assert not works.is_alive()
        said = UNSAFE if notice.kind is NoticeKind.REBALANCE else "aws is taking the machine back"
        assert [(row["reason"], row["detail"]) for row in ends] == [("drained", said)]
        assert jobs.attempts(job)[:1] == ends
        state = "succeeded" if notice.kind is NoticeKind.REBALANCE else "ready"
        assert jobs.job(job)["state"] == state
        assert jobs.log_chunks(job, after=(0, 0, -1)) == []


def test_a_worker_that_is_told_to_leave_while_it_hears_a_command_to_drain_leaves(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, go = Event(), Event()
    with agent(tmp_path, database_url, held, go) as (made, gateway):

        def ephemeral(_: WorkerIdentity) -> bool:
            # Read between the check for an earlier drain and the decision to rest.
            made.leaving.drain()
            return False

        gateway.queue.submit([JobSpec(name="j", owner="ann", command=["true"], resources=SMALL)])
        works = Thread(target=made.run, daemon=True)
        works.start()
        assert held.wait(60)
        with monkeypatch.context() as told:
            told.setattr(WorkerIdentity, "ephemeral", property(ephemeral))
            made.leaving.obey(Command.DRAIN)
        go.set()
        works.join(60)
        assert not works.is_alive()


def test_job_that_comes_back_is_next_also_for_who_claimed_past_it(rig: Rig) -> None:
    first, second, third = rig.submit(), rig.submit(), rig.submit()
    worker = rig.worker()
    # It looks at jobs before its last claim only once an hour.
    lanes = Lanes(rig.database, worker.id, refresh_s=3600)
    grants = [rig.queue.claim(lanes, worker.free)[0] for _ in range(2)]
    assert [grant.fence.job_id for grant in grants] == [first, second]
    with rig.listening() as heard:
        rig.queue.release(grants[0].fence)
        assert [Hint.read(hint).kind for hint in heard()] == ["back"]
    lanes.came_back()
    claimed = [rig.queue.claim(lanes, worker.free)[0].fence.job_id for _ in range(2)]
    assert claimed == [first, third]


def test_a_worker_hears_that_a_job_came_back_before_it_looks(
    rig: Rig, eventually: Eventually
) -> None:
    heard: list[str] = []
    listener = Listener(
        rig.url,
        work=lambda: heard.append("work"),
        asked=heard.append,
        back=lambda: heard.append("back"),
    )
    listener.start()
    try:
        eventually(lambda: heard == ["work"])
        rig.submit()
        rig.queue.release(rig.worker().claim_one().fence)
        eventually(lambda: heard[-2:] == ["back", "work"])
    finally:
        listener.end()


def test_departure_gives_back_what_is_late_and_leaves_what_is_told_already(
    tmp_path: Path, database_url: str
) -> None:
    now, left = [0.0], Event()
    with desk(database_url, tmp_path) as made:
        attempts: list[LiveAttempt] = [made.attempt() for _ in range(5)]
        late, decided, later, other, over = attempts
        spool = Spool(tmp_path / FILE, 4)
        departure = Shutdown(
            lambda: attempts,
            made.gateway,
            Outbox(made.gateway, spool),
            leave=left.set,
            clock=lambda: now[0],
        )
        over.request_stop(Stop(Reason.TIMEOUT, "over 7 s"))
        for attempt in (late, decided, later, over):
            attempt.request_stop(
                Stop(Reason.PREEMPTED, "aws is taking the machine back", window=Window(0, 30))
            )
        later.request_stop(Stop(Reason.PREEMPTED, window=Window(0, 40)))
        assert decided.decide_end()
        now[0] = 26.9
        departure.step()
        assert not any(attempt.lost for attempt in attempts)
        now[0] = 27.0
        departure.step()
        assert [attempt.lost for attempt in attempts] == [True, False, True, False, True]
        # A second step gets the same answers, and moves nothing twice.
        departure.step()
        departure.end()
        jobs = Jobs(made.database)
        assert [row["reason"] for row in jobs.attempts(late.fence.job_id)] == ["preempted"]
        (ended,) = jobs.attempts(over.fence.job_id)
        assert (ended["reason"], ended["detail"]) == (
            "timeout",
            "over 7 s; time was up before all was stored",
        )
        assert jobs.job(over.fence.job_id)["state"] == "failed"
        # A later report of the end changes nothing.
        assert not late.decide_end()
        assert spool.ends() == []
        assert [jobs.job(one.fence.job_id)["state"] for one in (decided, other)] == ["running"] * 2
        assert not left.is_set()
        assert departure.left_s() is None
        departure.announce(Window(0, 120))
        departure.announce(Window(0, 30))
        departure.announce(Window(0, 60))
        assert departure.left_s(5.0) == 1.5
        now[0] = 28.5
        departure.step()
        assert left.is_set()
        assert departure.left_s() == 0


def test_what_is_late_while_the_queue_is_away_waits_in_the_spool(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk(database_url, tmp_path) as made:
        attempt = made.attempt()
        outbox = Outbox(made.gateway, Spool(tmp_path / FILE, 4))
        departure = Shutdown(
            lambda: [attempt], made.gateway, outbox, leave=lambda: None, clock=lambda: 27.0
        )
        attempt.request_stop(Stop(Reason.PREEMPTED, window=Window(0, 30)))
        kept: list[Reason] = []

        def away(_ends: Any) -> None:  # noqa: ANN401  whatever it is
            """Look at the disk while the queue does not answer."""
            kept.extend(end.reason for end in Spool(tmp_path / FILE, 4).ends())
            assert attempt.lost
            raise DatabaseUnreachable("it is away")

        with monkeypatch.context() as broken:
            broken.setattr(made.gateway, "finish", away)
            departure.step()
            departure.step()
            departure.end()
        assert kept == [Reason.PREEMPTED]
        # Its own thread has no other end to report.
        assert not attempt.decide_end()
        outbox.step()
        assert outbox.spool.ends() == []
        jobs = Jobs(made.database)
        assert [row["reason"] for row in jobs.attempts(attempt.fence.job_id)] == ["preempted"]
        assert jobs.job(attempt.fence.job_id)["state"] == "ready"


def test_worker_leaves_in_time_while_the_queue_takes_its_own(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, left, go = [27.0], Event(), Event()
    with desk(database_url, tmp_path) as made:
        attempt = made.attempt()
        finish = made.gateway.finish

        def hangs(ends: list[End]) -> list[Ended]:
            go.wait(60)
            return finish(ends)

        outbox = Outbox(made.gateway, Spool(tmp_path / FILE, 4))
        departure = Shutdown(
            lambda: [attempt], made.gateway, outbox, leave=left.set, clock=lambda: now[0]
        )
        attempt.request_stop(Stop(Reason.PREEMPTED, window=Window(0, 30)))
        departure.announce(Window(0, 30))
        with monkeypatch.context() as slow:
            slow.setattr(made.gateway, "finish", hangs)
            departure.step()
            assert attempt.lost
            now[0] = 28.5
            departure.step()
            assert left.is_set()
            departure.end(departure.left_s())
            # Ends that the queue has not answered wait for the next start.
            assert [end.reason for end in outbox.spool.ends()] == [Reason.PREEMPTED]
            go.set()
            now[0] = 0.0
            departure.end(60.0)
        assert outbox.spool.ends() == []
        jobs = Jobs(made.database)
        assert [row["reason"] for row in jobs.attempts(attempt.fence.job_id)] == ["preempted"]
