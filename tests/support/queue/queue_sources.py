"""The state machine with jobs that start from other jobs' checkpoints, which are thinned out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.lease import fence_params
from forge_schema.model.spec import CheckpointSource
from forge_schema.model.states import State
from forge_schema.queue.inputs import CheckpointUnknown
from forge_schema.queue.thinning import PENDING
from hypothesis import strategies as st
from hypothesis.stateful import MultipleResults, invariant, multiple, precondition, rule
from support.queue.queue_machine import QueueMachine, lost, some
from support.queue.queue_model import CHARGED, Job
from support.queue.queue_races import RacingMachine
from support.queue.rig import spec

if TYPE_CHECKING:
    from forge_schema.model.lease import Fence

Place = tuple[int, int, int]
STORED = "SELECT job_id, token, number FROM checkpoint"
SOURCES = """
    SELECT id, source_job_id, source_token, source_number FROM job WHERE source_job_id IS NOT NULL
"""


class SourcedMachine(RacingMachine):
    """A checkpoint that another job starts from stays until that job has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[int, Place] = {}
        self.gone: set[Place] = set()

    @rule(target=QueueMachine.jobs, source=QueueMachine.jobs, lost=lost)
    def submit_from_a_checkpoint(self, source: int, *, lost: int) -> int | MultipleResults[int]:
        stored = self.model.jobs[source].checkpoints
        wanted = spec(from_checkpoint=CheckpointSource(job_id=source), backoff_s=0)
        submit = partial(self.rig.queue.submit, [wanted])
        if not stored:
            with pytest.raises(CheckpointUnknown):
                self._call("submit", min(lost, 1), submit)
            return multiple()
        (job_id,) = self._call("submit", min(lost, 1), submit)
        self.sources[job_id] = (source, *max(stored))
        limits = dict(zip(CHARGED, (3, 5, 50), strict=True))
        self.model.jobs[job_id] = Job(job_id, 0, None, limits, 0, None)
        self.told["submitted"] += 1
        return job_id

    @precondition(lambda self: self.model.at(State.RUNNING))
    @rule(target=QueueMachine.jobs, number=some, lost=lost)
    def thin_out_around_a_source(self, number: int, *, lost: int) -> int | MultipleResults[int]:
        """The middle of three equally old checkpoints would go, but another job starts from it."""
        job = self._running(number)
        assert job.fence is not None
        for which in range(2):
            self.write_records(job.fence, which, lost=0)
        started = self.submit_from_a_checkpoint(job.id, lost=0)
        self.write_records(job.fence, 2, lost=0)
        self.thin_out(job.fence, 1, lost=lost)
        return started

    @rule(fence=QueueMachine.fences, keep=st.integers(1, 2), lost=lost)
    def thin_out(self, fence: Fence, keep: int, *, lost: int) -> None:
        statement = "thin_checkpoints"
        params = {**fence_params(fence), "keep": keep, "pending": PENDING}
        thin = partial(self.rig.database.rows, statement, again=True, **params)
        rows = self._call(statement, lost, thin)
        job = self.model.held(fence)
        if job is None:
            assert rows == []
            return
        before, kept = job.checkpoints, self._stored(job.id)
        assert set(sorted(before)[-keep:]) <= kept <= before
        thinned = {(job.id, *place) for place in before - kept}
        for started, source in self.sources.items():
            assert source not in thinned or self.model.jobs[started].state.terminal
        self.gone |= thinned
        job.checkpoints = kept

    def _stored(self, job_id: int) -> set[tuple[int, int]]:
        rows = self.rig.rows(f"{STORED} WHERE job_id = %s", job_id)
        return {(row["token"], row["number"]) for row in rows}

    @invariant()
    def what_others_start_from_is_there(self) -> None:
        sources = {row.pop("id"): tuple(row.values()) for row in self.rig.rows(SOURCES)}
        stored = {tuple(row.values()) for row in self.rig.rows(STORED)}
        assert sources == self.sources
        assert set(sources.values()) <= stored | self.gone
        assert stored == {
            (j.id, *place) for j in self.model.jobs.values() for place in j.checkpoints
        }
