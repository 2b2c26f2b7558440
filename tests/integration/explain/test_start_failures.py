"""Jobs that do not start: what is said about them, and when they are tried no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.explain import explain
from forge_schema.model.attempt_records import CheckpointRecord
from forge_schema.model.explanation import Outlook
from forge_schema.model.lease import End
from forge_schema.model.states import Reason, State

if TYPE_CHECKING:
    from support.queue.rig import Rig, Worker

SAID = "the job needs the secret HF_TOKEN, but worker w-{} cannot provide it: it is too short"
PULL = "the image nosuch could not be pulled: dial tcp: lookup registry: i/o timeout"


def fails(rig: Rig, worker: Worker, said: str, *, lasting: bool = True) -> State:
    """Claim the job once it is due, and report that it could not be started."""
    rig.clock.advance(10_000)
    rig.tick.promote()
    # Until then, it is left to workers where it did not fail.
    rig.clock.advance(15)
    fence = worker.claim_one().fence
    (ended,) = rig.queue.finish([End(fence, Reason.START_FAILED, None, said, lasting=lasting)])
    assert ended.state is not None
    return ended.state


def test_the_same_lasting_failure_twice_ends_the_job_and_is_the_answer(rig: Rig) -> None:
    job, worker = rig.submit(), rig.worker("w-1")
    assert fails(rig, worker, SAID.format(1)) == State.SCHEDULED
    found = explain(rig.database, job)
    assert found.outlook is Outlook.SCHEDULED
    assert found.text.startswith(
        f"it waits: attempt 1 failed to start: {SAID.format(1)}; retrying in"
    )
    assert fails(rig, worker, SAID.format(1)) == State.FAILED
    row = rig.jobs.job(job)
    assert (row["reason"], row["attempt"]) == ("start_failed", 2)
    assert row["detail"] == f"failed to start the same way twice: {SAID.format(1)}"
    ended = explain(rig.database, job)
    assert "not retried, because it would fail the same way again" in ended.text


def test_a_worker_that_has_not_tried_yet_is_waited_for(rig: Rig) -> None:
    rig.submit()
    workers = [rig.worker(f"w-{n}") for n in range(3)]
    states = [fails(rig, workers[n], SAID.format(n)) for n in (0, 0, 1, 2)]
    assert states == [State.SCHEDULED] * 3 + [State.FAILED]


@pytest.mark.parametrize("unable", ["cpus", "drained"])
def test_one_that_cannot_run_it_is_not_waited_for(rig: Rig, unable: str) -> None:
    rig.submit(cpus=2)
    other = rig.worker("other", cpus=1 if unable == "cpus" else 8)
    if unable == "drained":
        rig.rows("UPDATE worker SET command = 'drain' WHERE id = %s", other.id)
    worker = rig.worker("w-1")
    assert fails(rig, worker, SAID.format(1)) == State.SCHEDULED
    assert fails(rig, worker, SAID.format(1)) == State.FAILED


def test_what_may_pass_is_tried_again_and_its_reason_is_said_first(rig: Rig) -> None:
    job, worker = rig.submit(), rig.worker("w-1")
    advice = []
    for _ in range(4):
        assert fails(rig, worker, PULL, lasting=False) == State.SCHEDULED
        advice += [one.code for one in explain(rig.database, job).remedies]
    assert advice == ["wait", *["mend_start"] * 3]
    (mend,) = explain(rig.database, job).remedies
    assert mend.text == "mend what keeps it from starting on w-1"
    assert f"attempt 4 failed to start: {PULL}; retrying in" in explain(rig.database, job).text
    rig.clock.advance(100_000)
    rig.tick.promote()
    text = explain(rig.database, job).text
    assert text.startswith(f"attempt 4 failed to start: {PULL}; ")


def test_two_different_failures_are_no_answer(rig: Rig) -> None:
    rig.submit()
    worker = rig.worker("w-1")
    assert fails(rig, worker, SAID.format(1)) == State.SCHEDULED
    assert fails(rig, worker, "this worker's Python has no pip") == State.SCHEDULED


def test_a_secret_that_no_worker_has_is_reported(rig: Rig) -> None:
    worker = rig.worker("w-1")
    job = rig.submit(secrets=["NOPE"])
    found = explain(rig.database, job)
    assert found.text == "no online worker has the secret NOPE (1 checked)"
    assert worker.claim() == []
    rig.worker("w-2", labels={"forge.runs": "images,projects", "forge.secret.NOPE": "*"})
    assert explain(rig.database, job).outlook is Outlook.STARTS


def test_a_failure_of_storage_says_what_failed(rig: Rig) -> None:
    job, worker = rig.submit(), rig.worker("w-1")
    said = "the output could not be stored: no space left on device\nmore"
    rig.finish(worker.claim_one(), Reason.STORAGE_FAILED, detail=said)
    text = explain(rig.database, job).text
    assert ": the output could not be stored: no space left on device)" in text
    assert "more" not in text


def test_what_an_attempt_began_with_is_what_it_said(rig: Rig) -> None:
    job, worker = rig.submit(), rig.worker("w-1")
    first = worker.claim_one()
    for number in range(3):
        rig.records.add_checkpoint(first.fence, CheckpointRecord(number, f"k{number}", 1, 1))
    rig.finish(first, Reason.PREEMPTED)
    rig.clock.advance(10_000)
    rig.tick.promote()
    second = worker.claim_one()
    assert rig.records.add_beginning(second.fence, 1, 2)
    assert explain(rig.database, job).begins == ""
    # The worker could not read the two newest.
    assert rig.records.add_beginning(second.fence, 1, 0)
    told = "attempt 2 began with checkpoint 1.0: 2 newer ones could not be restored"
    assert explain(rig.database, job).begins == told
