"""Failures that a retry would only repeat end the job, and all others are retried."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.ending import QUICK
from forge_schema.model.attempt_records import CheckpointRecord, MetricRecord
from forge_schema.model.states import Phase, Reason, State
from forge_schema.storage import keys

if TYPE_CHECKING:
    from forge_schema.model.lease import Grant
    from support.queue.rig import Rig

MISSING = "ModuleNotFoundError: No module named 'numpy'"
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 1\n    import numpy\n'
INSTALLING = "installing requirements.txt ended with exit code 1: "
HOPELESS = [
    (127, "pyton: not found"),
    (127, None),
    (126, "./train.sh: [Errno 13] Permission denied"),
    (1, MISSING),
    (1, f"{MISSING}\n{TRACEBACK}{MISSING}"),
    (1, "SyntaxError: invalid syntax"),
    (1, "IndentationError: unexpected indent"),
    (1, "TabError: inconsistent use of tabs and spaces in indentation"),
    (1, "ImportError: cannot import name 'Model' from 'net' (net.py)"),
    (1, "/usr/bin/python3: No module named trian"),
    (2, "/usr/bin/python3.11: can't open file 'trian.py': [Errno 2] No such file or directory"),
    (1, "/usr/bin/python3: can't find '__main__' module in '.'"),
    (2, "train.py: error: unrecognized arguments: --epoch\nusage: train.py\ntrain.py: error: …"),
    (
        2,
        "Error: No such option: --epoch\nUsage: train.py [OPTIONS]\nError: No such option: --epoch",
    ),
    (2, "train.py: error: the following arguments are required: --data"),
    (4, "ERROR: usage: pytest [options]\nERROR: usage: pytest [options]\npytest: error: x"),
    (1, f"{INSTALLING}ERROR: Could not find … tqqqdm (from versions: none); the job's log has all"),
    (2, 'sh: 1: Syntax error: "fi" unexpected'),
]
RETRIED = [
    (1, "RuntimeError: CUDA error: an illegal memory access was encountered"),
    (1, f"{MISSING}\n{TRACEBACK}{MISSING}\nno numpy, going on without\nConnectionError: refused"),
    (3, MISSING),
    (1, f"{INSTALLING}the network failed, or …; ERROR: Could not find … (from versions: none)"),
    (1, None),
    (137, "killed by SIGKILL"),
    (126, "cannot prepare the job: [Errno 28] No space left on device"),
]


@pytest.mark.parametrize(("code", "detail"), HOPELESS)
def test_a_mistake_of_the_submitters_is_final_at_once(
    rig: Rig, code: int, detail: str | None
) -> None:
    job_id = rig.submit(max_failures=3)
    ended = _fails(rig, rig.worker().claim_one(), code, detail)
    assert ended == State.FAILED
    row = rig.jobs.job(job_id)
    assert (row["reason"], row["exit_code"], row["detail"]) == ("exit_code", code, detail)


@pytest.mark.parametrize(("code", "detail"), RETRIED)
def test_what_may_go_better_next_time_is_retried(rig: Rig, code: int, detail: str | None) -> None:
    rig.submit(backoff_s=0)
    assert _fails(rig, rig.worker().claim_one(), code, detail) == State.READY


def test_infrastructure_that_quotes_an_import_error_is_retried(rig: Rig) -> None:
    rig.submit(backoff_s=0)
    grant = rig.worker().claim_one()
    assert rig.finish(grant, Reason.START_FAILED, detail=MISSING).state == State.READY


def test_a_run_that_was_not_quick_is_retried(rig: Rig) -> None:
    rig.submit(backoff_s=0)
    worker = rig.worker()
    grant = worker.claim_one()
    rig.clock.advance(10 * QUICK.total_seconds())
    rig.queue.report(grant.fence, Phase.RUNNING)
    rig.clock.advance(QUICK.total_seconds())
    assert _fails(rig, grant, 1, MISSING) == State.READY


def test_a_long_preparation_does_not_make_a_run_long(rig: Rig) -> None:
    rig.submit()
    grant = rig.worker().claim_one()
    rig.clock.advance(10 * QUICK.total_seconds())
    rig.queue.report(grant.fence, Phase.RUNNING)
    assert _fails(rig, grant, 1, MISSING) == State.FAILED


@pytest.mark.parametrize("made", ["metric", "progress", "checkpoint"])
def test_a_job_that_made_progress_is_retried(rig: Rig, made: str) -> None:
    rig.submit(backoff_s=0)
    worker = rig.worker()
    grant = worker.claim_one()
    _progress(rig, grant, made)
    assert _fails(rig, grant, 1, MISSING) == State.READY
    again = worker.claim_one()
    if made != "progress":
        assert _fails(rig, again, 1, MISSING) == State.READY


def test_the_same_quick_failure_twice_is_final(rig: Rig) -> None:
    job_id = rig.submit(backoff_s=0)
    worker = rig.worker()
    said = "17:05:{} ValueError at 0x7f{}a in /tmp/tmp{}: process {}\nof {}f2a"
    for n, state in ((11, State.READY), (29, State.FAILED)):
        detail = said.format(n, n, "qx_ab"[n % 5 :], n * 7919, n)
        assert _fails(rig, worker.claim_one(), 1, detail) == state
    row = rig.jobs.job(job_id)
    assert row["detail"].startswith("failed the same way twice: 17:05:29 ValueError")
    assert [one["detail"][:8] for one in rig.jobs.attempts(job_id)] == ["17:05:11", "17:05:29"]


@pytest.mark.parametrize(("memory_mb", "last"), [(200, State.FAILED), (0, State.READY)])
def test_more_than_its_own_memory_twice_is_final(rig: Rig, memory_mb: int, last: State) -> None:
    rig.submit(backoff_s=0, resources={"memory_mb": memory_mb} if memory_mb else {})
    worker = rig.worker()
    for peak, state in ((300, State.READY), (310, last)):
        detail = f"needed more than its 200 MiB of memory, {peak} MiB: try --memory 410MiB"
        ended = rig.finish(worker.claim_one(), Reason.OOM, exit_code=137, detail=detail)
        assert ended.state == state


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((1, "ValueError: x"), (1, "ValueError: y")),
        ((1, "ValueError: x"), (3, "ValueError: x")),
        ((1, "ValueError: x"), (1, None)),
        ((1, None), (1, None)),
    ],
)
def test_failures_that_differ_or_say_nothing_are_retried(
    rig: Rig, first: tuple[int, str], second: tuple[int, str]
) -> None:
    rig.submit(backoff_s=0)
    worker = rig.worker()
    for code, detail in (first, second):
        assert _fails(rig, worker.claim_one(), code, detail) == State.READY


def test_a_job_that_got_further_on_another_worker_keeps_its_retries(rig: Rig) -> None:
    rig.submit(backoff_s=0)
    worker = rig.worker()
    assert _fails(rig, worker.claim_one(), 1, "ValueError: x") == State.READY
    assert _fails(rig, worker.claim_one(), 127, "sh: exec: python: not found") == State.READY


def test_an_end_of_another_kind_between_two_failures_starts_over(rig: Rig) -> None:
    rig.submit(backoff_s=0)
    worker = rig.worker()
    assert _fails(rig, worker.claim_one(), 1, "x") == State.READY
    assert rig.finish(worker.claim_one(), Reason.WORKER_LOST).state == State.READY
    assert _fails(rig, worker.claim_one(), 1, "x") == State.READY
    assert _fails(rig, worker.claim_one(), 1, "x") == State.FAILED


def test_a_long_first_run_is_not_the_same_failure(rig: Rig) -> None:
    rig.submit(backoff_s=0)
    worker = rig.worker()
    grant = worker.claim_one()
    rig.clock.advance(QUICK.total_seconds())
    assert _fails(rig, grant, 1, "x") == State.READY
    assert _fails(rig, worker.claim_one(), 1, "x") == State.READY


def test_who_says_how_often_to_retry_gets_so_many_retries(rig: Rig) -> None:
    # Stated explicitly, even though it is the default.
    rig.submit(backoff_s=0, max_failures=3)
    worker = rig.worker()
    states = [_fails(rig, worker.claim_one(), 1, "x") for _ in range(4)]
    assert states == [State.READY] * 3 + [State.DEAD]


@pytest.mark.parametrize(
    ("fields", "ended"), [({}, State.FAILED), ({"max_failures": 3}, State.READY)]
)
def test_calls_that_all_ended_as_before_are_final_however_far_the_others_got(
    rig: Rig, fields: dict[str, int], ended: State
) -> None:
    rig.submit(backoff_s=0, **fields)
    worker = rig.worker()
    for did, state in (("failed", State.READY), ("failed as before", ended)):
        grant = worker.claim_one()
        for made in ("progress", "checkpoint"):
            _progress(rig, grant, made)
        rig.clock.advance(2 * QUICK.total_seconds())
        detail = f"ValueError: x\ntask 7 {did}: ValueError: x\n1 of 9 tasks {did}: 7"
        assert _fails(rig, grant, 1, detail) == state


def test_a_retried_job_has_its_second_chance_again(rig: Rig) -> None:
    job_id = rig.submit(backoff_s=0)
    worker = rig.worker()
    for _ in range(2):
        assert _fails(rig, worker.claim_one(), 1, "x") == State.READY
        assert _fails(rig, worker.claim_one(), 1, "x") == State.FAILED
        rig.queue.retry(job_id)


def test_a_finish_that_is_repeated_answers_the_same(rig: Rig) -> None:
    job_id = rig.submit()
    grant = rig.worker().claim_one()
    for _ in range(2):
        assert _fails(rig, grant, 127, "pyton: not found") == State.FAILED
    assert len(rig.jobs.attempts(job_id)) == 1


def test_a_cancel_wins_over_a_typo(rig: Rig) -> None:
    job_id = rig.submit()
    grant = rig.worker().claim_one()
    rig.queue.cancel(job_id)
    assert _fails(rig, grant, 127, None) == State.CANCELLED


def _fails(rig: Rig, grant: Grant, code: int, detail: str | None) -> State | None:
    return rig.finish(grant, Reason.EXIT_CODE, exit_code=code, detail=detail).state


def _progress(rig: Rig, grant: Grant, made: str) -> None:
    match made:
        case "metric":
            rig.records.add_metrics(grant.fence, [MetricRecord(0, 1.0, {"loss": 1})])
        case "progress":
            rig.queue.report(grant.fence, Phase.RUNNING, progress=0.5)
        case "checkpoint":
            key = keys.AttemptKeys(grant.fence.job_id, grant.attempt, grant.fence.mark)
            row = CheckpointRecord(0, key.checkpoint_manifest(0), 1, 1)
            rig.records.add_checkpoint(grant.fence, row)
