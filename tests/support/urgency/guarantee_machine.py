"""The state machine of guarantees: GPUs are lent and given back, in whatever order."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from forge_schema.model.admin import OwnerSettings, TeamChanges
from forge_schema.model.lease import End, Fence
from forge_schema.model.states import Reason
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from support.database.clock import START
from support.queue.queue_tables import empty

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from support.queue.queue_tables import Row
    from support.queue.rig import Rig, Worker

GPUS = 4  # of each machine
MOST = GPUS + 1
owners = st.sampled_from(["ann", "ben", "eve"])
some = st.integers(0, 99)
# What the jobs that stay hold of each guarantee, by its kind and name.
HELD = """
    WITH due AS (
        SELECT 'owner' AS kind, owner AS name, guaranteed_gpus AS gpus FROM owner_quota
        UNION ALL SELECT 'queue', name, guaranteed_gpus FROM queue
        UNION ALL SELECT 'team', name, guaranteed_gpus FROM team
    )
    SELECT kind, name, gpus, (
        SELECT coalesce(sum(shape.gpus), 0) FROM lease
        JOIN lane ON lane.id = lease.lane_id
        JOIN shape ON shape.id = lane.shape_id
        JOIN owner_quota AS o ON o.owner = lane.owner
        WHERE lease.asked IS NULL
            AND (kind, due.name) IN (('owner', o.owner), ('queue', lane.queue), ('team', o.team))
    ) AS held
    FROM due WHERE gpus IS NOT NULL
"""
LEASES = """
    SELECT lease.job_id, lease.token, lease.nonce, lease.worker_id, lease.asked, shape.gpus
    FROM lease JOIN lane ON lane.id = lease.lane_id JOIN shape ON shape.id = lane.shape_id
    ORDER BY lease.job_id
"""
# Who left for whom, and what either counts for.
DISPLACED = """
    SELECT
        event.id, detail ->> 'guaranteed_to' AS guaranteed_to, shape.gpus,
        ARRAY['owner ' || lane.owner, 'queue ' || lane.queue, 'team ' || forge_team(lane.owner)]
            AS own,
        ARRAY['owner ' || its.owner, 'queue ' || its.queue, 'team ' || forge_team(its.owner)]
            AS its
    FROM event
    JOIN job ON job.id = event.job_id
    JOIN lane ON lane.id = job.lane_id
    JOIN shape ON shape.id = lane.shape_id
    JOIN job AS by ON by.id = (detail ->> 'by')::bigint
    JOIN lane AS its ON its.id = by.lane_id
    WHERE action = 'displaced'
    ORDER BY event.id
"""


class GuaranteeMachine(RuleBasedStateMachine):
    """Nobody is taken below a guarantee, and the jobs that leave for others come to an end."""

    rig: Rig
    team: Sequence[Worker]
    seen: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        empty(self.rig)
        self.rig.rows("DELETE FROM forming")
        self.rig.rows("DELETE FROM draft")
        self.rig.clock.set(START)

    @initialize(
        ann=st.integers(0, MOST), ben=st.none() | st.integers(0, MOST), urgent=st.booleans()
    )
    def begin(self, *, ann: int, ben: int | None, urgent: bool) -> None:
        self.guarantee("ann", ann)
        self.guarantee("ben", ben)
        preemption = "higher-priority" if urgent else "never"
        settings: dict[str, int | str | None] = {
            "preemption": preemption,
            "preempts_after_s": 0,
            "guaranteed_gpus": None,
        }
        self.rig.admin.set_queue("default", settings)
        self.rig.admin.set_queue("night", {**settings, "preemption": "never"})
        self.rig.admin.set_team("nlp", TeamChanges(join=["ben", "eve"], guaranteed_gpus=None))

    @rule(owner=owners, gpus=st.none() | st.integers(0, MOST))
    def guarantee(self, owner: str, gpus: int | None) -> None:
        self.rig.admin.limit_owner(owner, OwnerSettings(guaranteed_gpus=gpus))

    @rule(of=st.sampled_from(["team", "queue"]), gpus=st.none() | st.integers(0, MOST))
    def guarantee_to_several(self, of: str, gpus: int | None) -> None:
        if of == "team":
            self.rig.admin.set_team("nlp", TeamChanges(guaranteed_gpus=gpus))
        else:
            self.rig.admin.set_queue("night", {"guaranteed_gpus": gpus})

    @rule(
        owner=owners,
        queue=st.sampled_from(["default", "default", "night"]),
        count=st.integers(1, 4),
        gpus=st.integers(0, 3),
        priority=st.integers(-1, 2),
        claims=st.booleans(),
    )
    def submit(
        self, *, owner: str, queue: str, count: int, gpus: int, priority: int, claims: bool
    ) -> None:
        job = {"owner": owner, "queue": queue, "priority": priority, "gpus": gpus}
        self.rig.submit_many(count, **job)
        if claims:
            self.claim()

    @rule()
    def claim(self) -> None:
        for worker in self.team:
            while self._free(worker) and worker.claim():
                pass

    @rule(number=some, reason=st.sampled_from([Reason.SUCCEEDED, Reason.WORKER_LOST]))
    def end(self, number: int, reason: Reason) -> None:
        if leases := self.rig.rows(LEASES):
            self._end([leases[number % len(leases)]], reason)

    @rule(leave=st.booleans())
    def sweep(self, *, leave: bool) -> None:
        """Ask jobs to leave, which takes from nobody what is guaranteed."""
        self.rig.clock.advance(6)
        for worker in self.team:
            worker.renew_fences(list(self._fences(worker)))
        self.rig.tick.draft()
        held, before = self.rig.rows(HELD), len(self.rig.rows(DISPLACED))
        self.rig.tick.displace()
        left = self.rig.rows(DISPLACED)[before:]
        for due in held:
            key = f"{due['kind']} {due['name']}"
            taken = sum(row["gpus"] for row in left if key in row["own"] and key not in row["its"])
            assert not taken or due["held"] - taken >= due["gpus"], (due, left)
        if leave:
            self._leave()

    @rule()
    def settle(self) -> None:
        """While nothing else happens, jobs leave at most as often as GPUs are given back."""
        most = 2 * sum(row["gpus"] for row in self.rig.rows(HELD))
        most += len(self.rig.rows("SELECT FROM lease")) + len(self.rig.rows("SELECT FROM ready"))
        for _ in range(most + 1):
            before = len(self.rig.rows(DISPLACED))
            self.sweep(leave=True)
            self.claim()
            if len(self.rig.rows(DISPLACED)) == before:
                break
        else:
            raise AssertionError(self.rig.rows("SELECT * FROM event ORDER BY id"))
        self.seen["given back"] += any(row["guaranteed_to"] for row in self.rig.rows(DISPLACED))

    def _leave(self) -> None:
        self._end([row for row in self.rig.rows(LEASES) if row["asked"]], Reason.PREEMPTED)

    def _end(self, leases: Sequence[Row], reason: Reason) -> None:
        self.rig.queue.finish([End(_fence(row), reason) for row in leases])

    def _fences(self, worker: Worker) -> Iterator[Fence]:
        return (_fence(row) for row in self.rig.rows(LEASES) if row["worker_id"] == worker.id)

    def _free(self, worker: Worker) -> int:
        held: int = sum(
            row["gpus"] for row in self.rig.rows(LEASES) if row["worker_id"] == worker.id
        )
        worker.free = replace(worker.free, gpus=GPUS - held, gpus_in_all=GPUS)
        return GPUS - held


def _fence(row: Row) -> Fence:
    return Fence(row["job_id"], row["token"], row["nonce"])
