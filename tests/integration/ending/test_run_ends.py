"""Runs on several machines: each member ends on its own, and the last one settles the run."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple

import pytest
from forge_schema.model.lease import Ended, Usage
from forge_schema.model.states import Budget, Reason, Standing, State
from support.gangs.runs import budgets, ended, running, settled, stop

if TYPE_CHECKING:
    from support.queue.rig import Rig

RESET = "torch.distributed: Connection closed by peer [10.0.0.7]:41234"
# By the budget of the reason of a member that failed first: the state of its job.
STATES = {
    Budget.FAILURES: State.SCHEDULED,
    Budget.LOSSES: State.SCHEDULED,
    Budget.PREEMPTIONS: State.READY,
    Budget.FREE: State.READY,
    Budget.FINAL: State.FAILED,
    Budget.CANCEL: State.CANCELLED,
}


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_run_succeeds_when_all_members_have_in_any_order(rig: Rig, order: list[int]) -> None:
    run = running(rig)
    run.start()
    for rank in order[:-1]:
        told = run.end(rank, usage=Usage(gpu_seconds=rank + 1.0))
        expected = Ended(run.job_id, accepted=True, reason=Reason.SUCCEEDED, state=State.RUNNING)
        assert told == expected
        assert rig.state(run.job_id) is State.RUNNING
        assert [run.standing(other) for other in order[-1:]] == [Standing.OK]
    last = run.end(order[-1], usage=Usage(gpu_seconds=order[-1] + 1.0))
    assert last.state is State.SUCCEEDED
    settled(run, State.SUCCEEDED)
    assert run.reasons() == ["succeeded"] * 3
    assert [row["gpu_seconds"] for row in run.members()] == [1.0, 2.0, 3.0]
    assert [row["accepted"] for row in run.members()] == [True, False, False]
    assert rig.jobs.job(run.job_id)["token"] == run.fences[0].token


@pytest.mark.parametrize("rank", range(3))
@pytest.mark.parametrize(
    "reason", [r for r in Reason if r.budget is not Budget.SUCCESS and r != "dependency_failed"]
)
def test_the_member_that_fails_first_decides_and_the_others_are_asked_to_stop(
    rig: Rig, reason: Reason, rank: int
) -> None:
    run = running(rig)
    run.start()
    others = [other for other in range(3) if other != rank]
    with rig.listening() as heard:
        run.end(rank, reason, exit_code=1)
        told = [*heard(), *heard()]
    assert sorted(told) == [f"asked:{run.workers[other].id}" for other in others]
    for other in others:
        stop(run, other)
    state = STATES[reason.budget]
    if reason is Reason.START_FAILED:
        assert budgets(rig, run.job_id) == (0, 0, 0)
    settled(run, State.READY if reason is Reason.WORKER_LOST else state)
    wanted = [reason if r == rank else Reason.RUN_ENDED for r in range(3)]
    assert run.reasons() == wanted


@pytest.mark.parametrize(
    ("reason", "used"),
    [
        (Reason.EXIT_CODE, (1, 0, 0)),
        (Reason.WORKER_LOST, (0, 1, 0)),
        (Reason.PREFLIGHT_FAILED, (0, 1, 0)),
        (Reason.PREEMPTED, (0, 0, 1)),
        (Reason.DRAINED, (0, 0, 0)),
        (Reason.GPU_FAULT, (0, 0, 0)),
        (Reason.RUN_ENDED, (0, 0, 0)),
    ],
)
def test_a_run_is_charged_once_and_to_the_first_members_budget(
    rig: Rig, reason: Reason, used: tuple[int, int, int]
) -> None:
    run = running(rig)
    ended(run, (2, reason, 1, "why"), (0, Reason.EXIT_CODE, 1, RESET))
    stop(run, 1)
    assert budgets(rig, run.job_id) == used


class Told(NamedTuple):
    """The ends of members in their order, and which of them decides."""

    ends: list[tuple[int, Reason, int | None, str | None]]
    first: int
    reasons: list[Reason]


CODE, OVER = Reason.EXIT_CODE, Reason.RUN_ENDED
DECISIONS = {
    "the others heard that the machine was gone before its lease ran out": Told(
        [(0, CODE, 1, RESET), (1, CODE, -15, None), (2, Reason.WORKER_LOST, None, "ran out")],
        2,
        [OVER, OVER, Reason.WORKER_LOST],
    ),
    "a program took its time to end, and its neighbour noticed at once": Told(
        [(0, CODE, 1, RESET), (2, CODE, 1, "ValueError: bad"), (1, CODE, 143, "terminated")],
        2,
        [OVER, OVER, CODE],
    ),
    "two failed on their own": Told(
        [(1, Reason.OOM, 137, None), (0, Reason.DISK_FULL, 1, None), (2, OVER, None, None)],
        1,
        [Reason.DISK_FULL, Reason.OOM, OVER],
    ),
    "one had succeeded before": Told(
        [(0, Reason.SUCCEEDED, 0, None), (2, CODE, 3, "bad"), (1, OVER, None, None)],
        2,
        [OVER, OVER, CODE],
    ),
    "all only heard of each other": Told(
        [(1, CODE, 1, RESET), (0, CODE, 1, RESET), (2, OVER, None, None)],
        1,
        [OVER, OVER, OVER],
    ),
    "a watchdog fired": Told(
        [
            (2, CODE, -6, "Watchdog caught collective operation timeout"),
            (1, Reason.STALLED, None, "no output"),
            (0, OVER, None, None),
        ],
        1,
        [OVER, Reason.STALLED, OVER],
    ),
}


@pytest.mark.parametrize("case", DECISIONS)
def test_the_cause_is_told_from_its_echoes(rig: Rig, case: str) -> None:
    run = running(rig, max_failures=0, max_losses=0)
    ends, first, reasons = DECISIONS[case]
    run.start()
    ended(run, *ends)
    row = rig.jobs.job(run.job_id)
    assert row["token"] == run.fences[first].token
    did = "ended" if row["reason"] == "worker_lost" else "failed"
    assert row["detail"].startswith(f"rank {first} on gpu-{first} {did} first: ")
    stored = run.reasons()
    # The member that decides keeps its own reason, even if it was an echo too.
    assert stored[first] == {rank: reason for rank, reason, _, _ in ends}[first]
    assert [r for rank, r in enumerate(stored) if rank != first] == [
        reason for rank, reason in enumerate(reasons) if rank != first
    ]


@pytest.mark.parametrize(
    "said",
    [
        "BrokenPipeError: [Errno 32] Broken pipe",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "  return self.recv()\nEOFError",
        (
            "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting"
            " 1800000ms for recv operation to complete"
        ),
        "[Rank 1]: Ranks 0 failed to pass monitoredBarrier in 60000 ms",
        "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//x",
        "DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.",
        "DistNetworkError: failed to recv, got 0 bytes",
        (
            "[rank1]: Some NCCL operations have failed or timed out: Watchdog caught collective"
            " operation timeout: WorkNCCL(SeqNum=7, OpType=BROADCAST)"
        ),
    ],
)
def test_what_libraries_say_of_a_member_that_is_gone_is_an_echo(rig: Rig, said: str) -> None:
    run = running(rig, 2, max_losses=0)
    run.start()
    ended(run, (1, CODE, 1, said), (0, Reason.WORKER_LOST, None, "ran out"))
    assert run.reasons() == [Reason.WORKER_LOST, OVER]
    assert rig.jobs.job(run.job_id)["reason"] == Reason.WORKER_LOST


@pytest.mark.parametrize("said", ["ValueError: no EOFErrors", "the pipe is Broken", "Timed out"])
def test_what_a_program_says_of_itself_is_no_echo(rig: Rig, said: str) -> None:
    run = running(rig, 2, max_failures=0)
    run.start()
    ended(run, (1, CODE, 1, said), (0, Reason.WORKER_LOST, None, "ran out"))
    assert run.reasons() == [Reason.WORKER_LOST, CODE]
    assert rig.jobs.job(run.job_id)["reason"] == CODE


@pytest.mark.parametrize(
    ("reason", "useful"),
    [(Reason.SUCCEEDED, 1.0), (Reason.EXIT_CODE, 0.0), (Reason.CANCELLED, 0.0)],
)
def test_the_work_of_a_rank_counts_if_the_run_succeeded(
    rig: Rig, reason: Reason, useful: float
) -> None:
    run = running(rig, 2, max_failures=0)
    run.start()
    rig.clock.advance(100)
    run.end(1, usage=Usage(gpu_seconds=100.0))
    rig.clock.advance(1)
    run.end(0, reason, exit_code=1)
    query = (
        "SELECT forge_useful(reason, claimed_at, checkpoint_at, finished_at) AS useful"
        " FROM attempt WHERE job_id = %s AND rank = 1"
    )
    assert rig.rows(query, run.job_id) == [{"useful": useful}]


@pytest.mark.parametrize("detail", [None, "Traceback\nValueError: bad"])
def test_the_outcome_says_which_rank_failed_first(rig: Rig, detail: str | None) -> None:
    run = running(rig, max_failures=0)
    ended(run, (2, Reason.EXIT_CODE, 1, detail))
    stop(run, 0)
    stop(run, 1)
    row = rig.jobs.job(run.job_id)
    assert (row["state"], row["reason"], row["exit_code"]) == ("dead", "exit_code", 1)
    assert row["detail"] == f"rank 2 on gpu-2 failed first: {detail or 'exit code 1'}"
    assert run.members()[2]["detail"] == detail


def test_the_outcome_names_the_rank_that_a_launcher_on_rank_0_has_named(rig: Rig) -> None:
    run = running(rig, max_failures=0)
    ended(run, (0, Reason.EXIT_CODE, 5, "rank 2 failed first: exit code 5\nlast lines"))
    stop(run, 1)
    stop(run, 2)
    assert rig.jobs.job(run.job_id)["detail"] == "rank 2 failed first: exit code 5\nlast lines"


def test_the_masters_success_ends_a_run_of_a_launcher_that_starts_the_others(rig: Rig) -> None:
    run = running(rig, launcher="ray")
    run.start()
    ended(run, (0, Reason.SUCCEEDED, 0, None))
    stop(run, 1)
    # It was killed, or its program failed since the master was gone.
    ended(run, (2, Reason.EXIT_CODE, 1, "lost the head node"))
    settled(run, State.SUCCEEDED)
    assert run.reasons() == ["succeeded", "run_ended", "run_ended"]


@pytest.mark.parametrize("launcher", ["torchrun", "accelerate", "deepspeed", "mpirun", "none"])
def test_with_other_launchers_every_member_has_to_succeed(rig: Rig, launcher: str) -> None:
    run = running(rig, launcher=launcher, max_failures=0)
    ended(run, (0, Reason.SUCCEEDED, 0, None))
    assert [run.standing(rank) for rank in (1, 2)] == [Standing.OK, Standing.OK]
    ended(run, (1, Reason.SUCCEEDED, 0, None), (2, Reason.EXIT_CODE, 9, None))
    settled(run, State.DEAD)


def test_a_failure_before_the_masters_success_counts(rig: Rig) -> None:
    run = running(rig, launcher="ray", max_failures=0)
    ended(run, (2, Reason.EXIT_CODE, 1, "bad"), (0, Reason.SUCCEEDED, 0, None))
    stop(run, 1)
    settled(run, State.DEAD)
