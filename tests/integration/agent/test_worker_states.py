"""A worker's states change as docs/worker-states.md says, cell by cell."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.model.states import Command, WorkerStatus
from forge_schema.model.worker import Capacity, Machine
from forge_schema.queue.lanes import Lanes
from forge_schema.read.audit import Audit
from forge_schema.read.fleet import Fleet
from forge_schema.read.overview import OverviewReader, QueueCounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.queue.rig import Rig

PAGE = Path(__file__).parents[3] / "docs" / "worker-states.md"
SILENCE_S = 121


def table() -> dict[str, list[str]]:
    """Return the page's table: the effect of each action on each state."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("| from |"))
    rows = [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in lines[start + 2 : start + 2 + len(WorkerStatus)]
    ]
    return {row[0]: row[1:] for row in rows}


class Subject:
    """A worker that an admin made, and what can happen to it."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.id, _ = WorkerTokens(rig.database, actor="user:root").create("w")
        self.machine = Machine(uuid4(), cpus=1, memory_mb=1, disk_mb=1)
        self.register()

    @property
    def status(self) -> str:
        status: str = self.rig.registry.worker(self.id)["status"]
        return status

    def register(self) -> None:
        self.rig.registry.register_known(self.id, self.machine)

    def beat(self, status: WorkerStatus = WorkerStatus.IDLE) -> None:
        self.rig.queue.renew(self.id, self.machine.boot_id, [], status)

    def hold(self) -> None:
        """Hold a lease, and beat."""
        if not self.rig.count("lease"):
            self.rig.submit()
            lanes = Lanes(self.rig.database, self.id, refresh_s=-1)
            self.rig.queue.claim(lanes, Capacity(1, 1, 1))
        # The heartbeat still reports the status from before the claim.
        self.beat()

    def leave(self) -> None:
        """Report that it was told on its own machine to leave."""
        said = {"draining": True}
        self.rig.queue.renew(self.id, self.machine.boot_id, [], WorkerStatus.BUSY, said)

    def drain(self) -> None:
        self.rig.registry.command(self.id, Command.DRAIN)
        self.beat()

    def let_work(self) -> None:
        self.rig.registry.command(self.id, None)

    def disconnect(self) -> None:
        self.rig.registry.disconnect(self.id, self.machine.boot_id)

    def be_silent(self) -> None:
        self.rig.clock.advance(SILENCE_S)
        self.rig.tick.mark_offline()

    def bring(self, status: str) -> None:
        """Bring it from `connecting` into a state."""
        ways: dict[str, Callable[[], None]] = {
            "connecting": lambda: None,
            "idle": self.beat,
            "busy": self.hold,
            "constrained": lambda: self.beat(WorkerStatus.CONSTRAINED),
            "draining": self.drain,
            "offline": self.disconnect,
        }
        ways[status]()
        assert self.status == status
        # Being asked to drain is a column of the table, not part of the state.
        self.let_work()


ACTS: dict[str, Callable[[Subject], None]] = {
    "register": Subject.register,
    "heartbeat, idle": Subject.beat,
    "heartbeat, busy": Subject.hold,
    "heartbeat, constrained": lambda subject: subject.beat(WorkerStatus.CONSTRAINED),
    "heartbeat, drained": Subject.drain,
    "heartbeat, leaving": Subject.leave,
    "disconnect": Subject.disconnect,
    "silence": Subject.be_silent,
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("status", list(WorkerStatus))
def test_each_act_makes_of_each_state_what_the_page_says(
    rig: Rig, status: WorkerStatus, act: str
) -> None:
    subject = Subject(rig)
    subject.bring(status.value)
    if act != "heartbeat, busy":
        rig.rows("DELETE FROM lease")
    ACTS[act](subject)
    assert subject.status == table()[status.value][list(ACTS).index(act)]


@pytest.mark.parametrize("status", list(WorkerStatus))
def test_an_older_boot_changes_nothing(rig: Rig, status: WorkerStatus) -> None:
    subject = Subject(rig)
    subject.bring(status.value)
    rig.registry.disconnect(subject.id, uuid4())
    assert subject.status == status


def test_each_move_is_in_the_trail(rig: Rig) -> None:
    subject = Subject(rig)
    acts: list[Callable[[], None]] = [
        subject.beat, subject.beat, partial(subject.beat, WorkerStatus.BUSY),
        partial(subject.beat, WorkerStatus.CONSTRAINED), subject.drain,
        subject.disconnect, subject.disconnect, subject.register, subject.be_silent,
        subject.be_silent,
    ]  # fmt: skip
    for act in acts:
        act()
        rig.clock.advance(1)
    events = Audit(rig.database).events(worker_id=subject.id)
    assert [row["action"] for row in events] == [
        "worker_created", "registered", "status_changed", "status_changed",
        "drain", "status_changed", "disconnected", "registered", "offline",
    ]  # fmt: skip
    moves = [row["detail"] for row in events if row["action"] == "status_changed"]
    assert moves == [
        {"from": "connecting", "to": "idle"},
        {"from": "idle", "to": "constrained"},
        {"from": "constrained", "to": "draining"},
    ]


def test_the_word_of_an_admin_outlives_a_boot(rig: Rig) -> None:
    subject = Subject(rig)
    subject.drain()
    subject.machine = Machine(uuid4(), cpus=1, memory_mb=1, disk_mb=1)
    subject.register()
    assert subject.status == "connecting"
    subject.beat(WorkerStatus.BUSY)
    assert subject.status == "draining"


def test_idle_and_busy_follow_the_leases_and_wait_for_no_heartbeat(rig: Rig) -> None:
    worker = rig.worker()
    worker.renew()
    lists: dict[str, Callable[[], str]] = {
        "workers": lambda: rig.registry.worker(worker.id)["status"],
        "worker page": lambda: Fleet(rig.database).worker(worker.id)["status"],
        "page of workers": lambda: Fleet(rig.database).page().rows[0]["status"],
        "top": lambda: OverviewReader(rig.database).now(jobs=1, workers=1)["workers"][0]["status"],
        "counts": lambda: next(iter(Fleet(rig.database).counts())),
        "gauge": lambda: next(
            row["status"] for row in QueueCounts(rig.database, timedelta(1)).fleet()
        ),
    }
    seen = [{said() for said in lists.values()}]
    rig.submit()
    grant = worker.claim_one()
    seen.append({said() for said in lists.values()})
    busy = Fleet(rig.database).page(statuses=[WorkerStatus.BUSY]).rows
    rig.finish(grant)
    seen.append({said() for said in lists.values()})
    assert seen == [{"idle"}, {"busy"}, {"idle"}]
    assert [row["id"] for row in busy] == [worker.id]
    assert Fleet(rig.database).page(statuses=[WorkerStatus.BUSY]).rows == []
