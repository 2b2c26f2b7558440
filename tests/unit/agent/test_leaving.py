"""Requests to leave that cross on their way."""

from threading import Event
from typing import Any, cast

from forge_schema.model.states import Command
from forge_schema.model.worker import Capacity
from forge_worker.agent.claim_loop import Claims
from forge_worker.agent.leaving import Leaving
from forge_worker.agent.registration import Identity
from forge_worker.agent.running import Running
from forge_worker.agent.shutdown import Shutdown
from forge_worker.loop import Bell
from forge_worker.machine.condition import Condition
from forge_worker.machine.slots import Slots

UNUSED = cast("Any", None)


class DrainedMeanwhile(Claims):
    """Drains the worker just before its claims are opened again."""

    leaving: Leaving

    def open(self) -> None:
        self.leaving.drain()
        super().open()

    def give_back_unanswered(self) -> bool:
        return True


def test_worker_told_to_leave_as_its_drain_is_withdrawn_leaves() -> None:
    running, left = Running(), Event()
    claims = DrainedMeanwhile(UNUSED, Slots(Capacity(1, 1, 1), max_jobs=1), Identity())
    claims.leaving = Leaving(
        running,
        claims,
        Shutdown(running.attempts, UNUSED, UNUSED, leave=left.set),
        Condition(UNUSED, UNUSED, UNUSED, lambda: 0),
        changed=Bell(),
        left=left,
        term_notice_s=30,
    )
    claims.leaving.obey(Command.DRAIN)
    claims.leaving.obey(None)
    assert claims.closed
    assert left.wait(60)
