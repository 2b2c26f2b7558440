"""Requests to leave that cross on their way."""

from pathlib import Path
from threading import Event
from typing import Any, cast

from forge_schema.model.states import Command, Phase, Reason
from forge_schema.model.worker import Capacity
from forge_worker.agent.claim_loop import Claims
from forge_worker.agent.leaving import Leaving, Shutdown
from forge_worker.agent.registration import WorkerIdentity
from forge_worker.attempt import LiveAttempts
from forge_worker.loop import Bell
from forge_worker.machine.gate import Gate
from forge_worker.machine.slots import Slots
from forge_worker.machine.watched import Condition
from support.workers.attempts import attempt_of, some_grant

UNUSED = cast("Any", None)


class DrainedMeanwhile(Claims):
    """Drains the worker just before its claims are opened again."""

    leaving: Leaving

    def open(self) -> None:
        self.leaving.drain()
        super().open()

    def give_back_unanswered(self) -> bool:
        return True


def made_for(running: LiveAttempts, claims: Claims, left: Event) -> Leaving:
    return Leaving(
        running,
        claims,
        Shutdown(running.attempts, UNUSED, UNUSED, leave=left.set),
        Condition(UNUSED, UNUSED, UNUSED, Gate(Path()), lambda: 0),
        changed=Bell(),
        left=left,
        term_notice_s=30,
    )


def test_worker_told_to_leave_as_its_drain_is_withdrawn_leaves() -> None:
    running, left = LiveAttempts(), Event()
    claims = DrainedMeanwhile(UNUSED, Slots(Capacity(1, 1, 1), max_jobs=1), WorkerIdentity())
    claims.leaving = made_for(running, claims, left)
    claims.leaving.obey(Command.DRAIN)
    claims.leaving.obey(None)
    assert claims.closed
    assert left.wait(60)


def test_hand_over_gives_back_only_what_has_not_started(tmp_path: Path) -> None:
    running, left = LiveAttempts(), Event()
    claims = Claims(UNUSED, Slots(Capacity(1, 1, 1), max_jobs=1), WorkerIdentity())
    leaving = made_for(running, claims, left)
    runs, prepares, comes = (
        attempt_of(some_grant(job_id=n, token=n), tmp_path / str(n)) for n in range(3)
    )
    runs.phase = Phase.RUNNING
    running.add(runs)
    running.add(prepares)
    leaving.hand_over()
    leaving.turn_back(comes, Reason.DRAINED)
    assert claims.closed
    assert left.is_set()
    assert runs.stop is None
    for one in (prepares, comes):
        assert one.stop is not None
        assert one.stop.reason is Reason.DRAINED
