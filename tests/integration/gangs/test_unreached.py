"""Workers that the other machines of a gang cannot reach: who is blamed, and who is avoided."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from forge_client.cli.admin.worker import left_out
from forge_schema.explain import explain
from forge_schema.model.explanation import Chance
from forge_schema.model.states import Reason, State, WorkerStatus
from forge_schema.model.worker import WorkerInfo
from forge_worker.agent.registration import Registration
from forge_worker.gang.address import GangPolicy
from structlog.testing import capture_logs
from support.gangs.gang_workers import MEMBERS, GangWorker, asleep, gang_machine, gang_worker
from support.gangs.runs import Run, formed, gang, running

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from support.queue.rig import Rig

NOTED = "SELECT unreached_by, extract(EPOCH FROM gangs_after - forge_now()) AS s FROM worker"


def checked(run: Run, found: Mapping[int, Sequence[int] | None]) -> None:
    """Have members tell whom they could not reach, and end so; None: before their check."""
    for rank, unreached in found.items():
        told: dict[str, Any] = {} if unreached is None else {"unreached": list(unreached)}
        run.rig.queue.gather(run.fences[rank], 1, told)
    for rank, unreached in found.items():
        run.rig.clock.advance(1)
        failed = unreached is None or len(unreached) > 0
        reason = Reason.PREFLIGHT_FAILED if failed else Reason.RUN_ENDED
        run.end(rank, reason, detail=f"rank {rank} cannot reach {unreached}")


def noted(rig: Rig, worker_id: int) -> tuple[list[int] | None, float | None]:
    row = rig.row(f"{NOTED} WHERE id = {worker_id}")
    return row["unreached_by"], None if row["s"] is None else float(row["s"])


@pytest.mark.parametrize(
    ("found", "blamed"),
    [
        # Only the master's connection to the third breaks.
        ({0: [2], 1: [], 2: []}, [2]),
        # Neither way, and the third hears of it first.
        ({2: [0], 0: [2], 1: []}, [2]),
        # Nobody reaches the master, which reaches all.
        ({1: [0], 2: [0], 0: []}, [0]),
        ({0: [1, 2], 1: [], 2: []}, [0]),
        # One of three in three, and two of three in four.
        ({0: [1], 1: [], 2: [], 3: []}, [1]),
        ({0: [1, 3], 1: [0], 2: [], 3: []}, [1, 3]),
        # Of two, whoever was not reached.
        ({0: [1], 1: []}, [1]),
        ({0: [1], 1: [0]}, [0, 1]),
        # A member that tells nonsense is to blame for nothing.
        ({0: [2], 1: [2, 7, 1], 2: []}, [2]),
    ],
)
def test_a_worker_that_cannot_be_reached_is_blamed(
    rig: Rig, found: dict[int, list[int]], blamed: list[int]
) -> None:
    run = running(rig, len(found))
    checked(run, found)
    assert rig.state(run.job_id) is State.SCHEDULED
    reasons = [row["reason"] for row in run.members()]
    assert [rank for rank, reason in enumerate(reasons) if reason == "preflight_failed"] == blamed
    assert {reasons[rank] for rank in range(len(found)) if rank not in blamed} <= {"run_ended"}
    for rank, worker in enumerate(run.workers):
        assert (noted(rig, worker.id)[0] is not None) == (rank in blamed)


def test_a_member_that_fails_before_its_check_blames_itself(rig: Rig) -> None:
    run = running(rig, 2)
    checked(run, {1: None, 0: []})
    assert run.reasons() == ["run_ended", "preflight_failed"]
    assert noted(rig, run.workers[1].id) == (None, None)


def test_a_member_that_left_is_not_blamed_if_others_miss_it(rig: Rig) -> None:
    run = running(rig)
    run.rig.queue.gather(run.fences[0], 1, {"unreached": [2]})
    run.end(2, Reason.PREEMPTED)
    rig.clock.advance(1)
    run.end(0, Reason.PREFLIGHT_FAILED)
    run.end(1, Reason.RUN_ENDED)
    assert run.reasons()[2] == "preempted"
    assert noted(rig, run.workers[2].id) == (None, None)


def test_the_words_name_who_cannot_be_reached(rig: Rig) -> None:
    run = running(rig, max_losses=0)
    checked(run, {0: [2], 1: [], 2: []})
    job = rig.jobs.job(run.job_id)
    assert (job["state"], job["reason"]) == ("dead", "preflight_failed")
    assert job["detail"] == "rank 0 cannot reach [2]"


def test_the_next_run_avoids_who_could_not_be_reached(rig: Rig) -> None:
    workers = asleep(rig, 4)
    job = rig.submit(nodes=3, max_losses=9)
    first = _run(rig, job, workers)
    checked(first, {0: [2], 1: [], 2: []})
    for worker in workers[:3]:
        worker.grants.clear()
        worker.look()
    rig.clock.advance(3600)
    _alive(rig)
    rig.tick.promote()
    chosen = [row["worker_id"] for row in rig.rows(MEMBERS)]
    assert chosen == [workers[0].id, workers[1].id, workers[3].id]


def test_it_is_chosen_again_if_too_few_others_are_there(rig: Rig) -> None:
    workers = asleep(rig, 3)
    job = rig.submit(nodes=3, max_losses=9)
    # The master of this run is to blame; in the next one it is the last rank.
    checked(_run(rig, job, workers), {1: [0], 2: [0], 0: []})
    for worker in workers:
        worker.look()
    rig.clock.advance(3600)
    _alive(rig)
    rig.tick.promote()
    chosen = [row["worker_id"] for row in rig.rows(MEMBERS)]
    assert chosen == [workers[1].id, workers[2].id, workers[0].id]


def test_drafts_avoid_it_too(rig: Rig) -> None:
    workers = asleep(rig, 3)
    job = rig.submit(nodes=2, max_losses=9)
    run = _run(rig, job, workers[:2])
    checked(run, {0: [1], 1: []})
    (ids,) = rig.rows(
        "SELECT forge_draftable(shape_id, %s, 2) AS ids"
        " FROM job JOIN lane ON lane.id = lane_id WHERE job.id = %s",
        job,
        job,
    )
    assert {*ids["ids"][:2]} == {workers[0].id, workers[2].id}
    assert ids["ids"][2:] == [workers[1].id]


def test_a_worker_that_several_cannot_reach_takes_no_part_for_a_while_that_grows(rig: Rig) -> None:
    bad, pauses = rig.worker("bad"), []
    for turn in range(8):
        good = rig.worker(f"good{turn}")
        checked(formed(rig, gang(rig, 2, max_losses=9), [good, bad]), {0: [1], 1: []})
        peers, pause = noted(rig, bad.id)
        assert peers is not None
        assert (peers[-1], len(peers)) == (good.id, min(turn + 1, 7))
        pauses.append(None if pause is None else round(pause / 60))
    assert pauses == [None, 2, 4, 8, 16, 32, 64, 64]


def test_two_that_cannot_reach_each_other_are_not_left_out(rig: Rig) -> None:
    first = running(rig, 2, max_losses=9)
    checked(first, {0: [1], 1: [0]})
    for _ in range(3):
        run = _again(first)
        checked(run, {0: [1], 1: [0]})
    for worker in first.workers:
        peers, pause = noted(rig, worker.id)
        assert len(peers or []) == 4
        assert pause is None


def test_of_three_the_same_one_is_left_out_at_the_second_time(rig: Rig) -> None:
    first = running(rig, 3, max_losses=9)
    checked(first, {0: [2], 1: [], 2: []})
    assert noted(rig, first.workers[2].id)[1] is None
    checked(_again(first), {0: [2], 1: [], 2: []})
    assert noted(rig, first.workers[2].id)[1] == 120


def test_a_gang_that_passes_the_check_clears_its_workers(rig: Rig) -> None:
    first = running(rig, 2, max_losses=9)
    checked(first, {0: [1], 1: [0]})
    run = _again(first)
    for fence in run.fences:
        rig.queue.gather(fence, 2, {"unreached": []})
    for rank in range(2):
        run.end(rank)
    assert [noted(rig, worker.id) for worker in run.workers] == [(None, None)] * 2


def test_a_worker_that_is_left_out_is_in_no_gang_until_then(rig: Rig) -> None:
    workers = asleep(rig, 2)
    _leave_out(rig, workers[0])
    job = rig.submit(nodes=2)
    assert rig.rows(MEMBERS) == []
    rig.clock.advance(61)
    _alive(rig)
    rig.tick.run()
    assert [row["job_id"] for row in rig.rows(MEMBERS)] == [job, job]


def test_it_hears_for_how_long_with_its_renewals(rig: Rig) -> None:
    (worker,) = asleep(rig, 1)
    assert worker.gateway.renew([], WorkerStatus.IDLE).gangs_after_s is None
    _leave_out(rig, worker)
    assert worker.gateway.renew([], WorkerStatus.IDLE, {}).gangs_after_s == 60
    assert worker.gateway.renew([], WorkerStatus.CONSTRAINED, {}).gangs_after_s == 60


def test_a_restart_or_another_address_ends_it(rig: Rig) -> None:
    same, moved, again = (gang_worker(rig, name) for name in ("same", "moved", "again"))
    machine = gang_machine()
    for worker in (same, moved, again):
        worker.gateway.register(machine)
        _leave_out(rig, worker)
    same.gateway.register(machine)
    moved.gateway.register(replace(machine, address="10.0.0.9"))
    again.gateway.register(replace(machine, boot_id=uuid4()))
    found = [noted(rig, worker.id)[1] for worker in (same, moved, again)]
    assert found == [60, None, None]


def test_explain_and_the_list_of_workers_tell_of_it(rig: Rig) -> None:
    workers = asleep(rig, 3)
    _leave_out(rig, workers[0])
    found = explain(rig.database, rig.submit(nodes=3))
    assert found.text == "only 2 of the 3 machines that it needs are taking jobs now"
    (told,) = (one for one in found.workers if one.worker_id == workers[0].id)
    assert (told.chance, told.available) == (Chance.CONSTRAINED, False)
    assert told.text == (
        "takes no part in gangs for another 1 min: nobody could reach 10.0.0.1"
        " (check --advertise-address and its firewall)"
    )
    # It takes other jobs as before.
    single = explain(rig.database, rig.submit())
    assert {one.chance for one in single.workers} == {Chance.STARTS}
    rows = [WorkerInfo(**row) for row in rig.registry.workers()]
    assert [left_out(row) for row in rows] == [
        " (no gangs: nobody can reach 10.0.0.1; check --advertise-address)",
        "",
        "",
    ]
    rig.clock.advance(61)
    assert {left_out(WorkerInfo(**row)) for row in rig.registry.workers()} == {""}


def test_its_own_log_says_so_once_for_each_pause() -> None:
    registration = Registration.__new__(Registration)
    registration._left_out_s = 0.0
    registration._gangs = GangPolicy("host", advertised="10.0.0.5")
    with capture_logs() as logs:
        for left_s in (0.0, 119.0, 60.0, 0.0, 240.0):
            registration.left_out(left_s)
    assert [(one["event"], one["pause_s"]) for one in logs] == [
        ("gangs_paused", 119),
        ("gangs_paused", 240),
    ]
    assert logs[0]["note"].startswith("nobody can reach 10.0.0.5; check --advertise-address")


def _run(rig: Rig, job: int, workers: list[GangWorker]) -> Run:
    """Return the run that a job has now, by rank, with the fences that its workers fetched."""
    rows = rig.rows(MEMBERS)
    by_id = {worker.id: worker for worker in workers}
    for row in rows:
        by_id[row["worker_id"]].look()
    fences = [by_id[row["worker_id"]].grants[-1].fence for row in rows]
    members: Any = [by_id[row["worker_id"]] for row in rows]
    return Run(rig, job, members, fences)


def _again(run: Run) -> Run:
    """Return another job's run on the same workers."""
    return formed(run.rig, gang(run.rig, len(run.workers), max_losses=9), run.workers)


def _leave_out(rig: Rig, worker: GangWorker) -> None:
    rig.rows(
        "UPDATE worker SET unreached_by = '{7,8}', gangs_after = forge_now() + interval '60 s'"
        " WHERE id = %s",
        worker.id,
    )


def _alive(rig: Rig) -> None:
    rig.rows("UPDATE worker SET last_seen_at = forge_now()")
