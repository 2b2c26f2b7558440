"""Short jobs run on machines that are kept for a gang, if they end before it can form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.explain import explain
from forge_schema.model.explanation import Chance
from forge_schema.model.states import Phase
from forge_schema.queue.claim import LOOK_PAST
from forge_schema.queue.lane import SHOWN
from forge_schema.queue.lanes import Lanes
from forge_schema.queue.reservation import PATIENCE_S
from forge_schema.sweeper.tick import TURN
from forge_schema.wake import Hint
from forge_worker.queue.gateway import SqlGateway
from support.gangs.drafts import drafted, fresh, late, pass_time, turn_over

if TYPE_CHECKING:
    from support.gangs.gang_workers import GangWorker
    from support.queue.rig import Rig

# A time limit, the grace period of `spec`, and half a minute for its preparation.
LIMIT_S = 130
LONGEST_S = LIMIT_S + 30 + 30
# How long the gang waits for the job with this limit, once its patience has ended.
WAITS_S = LONGEST_S - PATIENCE_S
SHORT_S = 30
EXPECTED = "SELECT extract(EPOCH FROM expected_at - forge_now())::float8 AS s FROM forming"


def kept(rig: Rig, **changes: Any) -> tuple[GangWorker, GangWorker, int]:  # noqa: ANN401  fields of a job
    """Return a free worker and a busy one that are drafted for a gang, and the gang.

    The busy one's job has this time limit, if `changes` do not say otherwise.
    """
    one, two = (fresh(rig, name) for name in ("one", "two"))
    for worker, limits in ((one, {}), (two, {"timeout_s": LIMIT_S, **changes})):
        rig.submit(**limits)
        (grant,) = worker.look()
        rig.queue.report(grant.fence, Phase.RUNNING)
    gang = late(rig)
    turn_over(one)
    assert drafted(rig) == {one.id: gang, two.id: gang}
    return one, two, gang


def submit(rig: Rig, told: list[GangWorker], **changes: Any) -> int:  # noqa: ANN401  as above
    """Submit a job, of which these workers hear if they are to wake."""
    with rig.listening() as heard:
        job = rig.submit(**changes)
        hint = Hint.read(heard()[-1])
    for worker in told:
        assert isinstance(worker.gateway, SqlGateway)
        worker.gateway.wakes(hint)
    return job


def expected_s(rig: Rig) -> float:
    found: float = rig.row(EXPECTED)["s"]
    return found


def took(worker: GangWorker) -> list[int]:
    """Return the jobs that a worker's next look takes."""
    return [grant.job_id for grant in worker.look()]


def chances(rig: Rig, job: int) -> dict[str, Chance]:
    return {one.worker: one.chance for one in explain(rig.database, job).workers}


def test_a_short_job_passes_while_another_machine_runs_one_with_a_limit(rig: Rig) -> None:
    one, two, gang = kept(rig)
    assert expected_s(rig) == WAITS_S
    short = rig.submit(timeout_s=SHORT_S)
    assert chances(rig, short) == {"one": Chance.STARTS, "two": Chance.BUSY}
    assert explain(rig.database, gang).text.endswith("(short jobs may pass)")
    assert took(one) == [short]
    turn_over(two)
    assert rig.places(gang) == ["ready"]
    turn_over(one)
    assert rig.places(gang) == ["lease"] * 2


@pytest.mark.parametrize(
    "changes",
    [{}, {"timeout_s": WAITS_S - 30 - 30 + 1}, {"timeout_s": SHORT_S, "grace_s": WAITS_S}],
    ids=str,
)
def test_a_job_that_may_take_longer_does_not_pass(rig: Rig, changes: dict[str, Any]) -> None:
    one, _, _ = kept(rig)
    job = rig.submit(**changes)
    assert chances(rig, job) == {"one": Chance.RESERVED, "two": Chance.BUSY}
    assert took(one) == []
    assert explain(rig.database, job).workers[0].text == (
        "reserves its free resources for a job ahead of this one;"
        " the next jobs in line may pass if their --timeout ends them within 3 min"
    )


@pytest.mark.parametrize(
    ("changes", "asked"), [({"timeout_s": None}, None), ({}, "cancelled")], ids=str
)
def test_nothing_passes_while_the_last_machine_may_be_free_at_any_moment(
    rig: Rig, changes: dict[str, Any], asked: str | None
) -> None:
    one, two, _ = kept(rig, **changes)
    rig.rows("UPDATE lease SET asked = %s::asked WHERE worker_id = %s", asked, two.id)
    pass_time(rig, 0)
    assert expected_s(rig) == 0
    job = rig.submit(timeout_s=1)
    assert chances(rig, job)["one"] is Chance.RESERVED
    assert took(one) == []


def test_progress_tells_when_a_job_without_a_limit_ends(rig: Rig) -> None:
    one, two, _ = kept(rig, timeout_s=None)
    rig.rows("UPDATE forming SET expected_at = NULL")
    # After ten seconds.
    rig.rows("UPDATE lease SET progress = 0.1 WHERE worker_id = %s", two.id)
    pass_time(rig, 0)
    assert expected_s(rig) == pytest.approx(90)
    # It never moves to a later time.
    rig.rows("UPDATE lease SET progress = 0.06 WHERE worker_id = %s", two.id)
    pass_time(rig, 0)
    assert expected_s(rig) == pytest.approx(90)
    rig.submit(timeout_s=31)
    assert took(one) == []
    short = rig.submit(timeout_s=1)
    assert took(one) == [short]


def test_a_machine_may_have_room_while_it_runs_other_jobs(rig: Rig) -> None:
    one, two = fresh(rig, "one", cpus=2), fresh(rig, "two")
    for worker, limit_s in ((one, 10 * LIMIT_S), (two, LIMIT_S)):
        rig.submit(timeout_s=limit_s)
        (grant,) = worker.look()
        rig.queue.report(grant.fence, Phase.RUNNING)
    assert one.look(cpus=1) == []
    rig.submit(nodes=2)
    pass_time(rig, 0)
    pass_time(rig, PATIENCE_S)
    assert expected_s(rig) == WAITS_S


def test_jobs_pass_for_three_quarters_of_a_turn_at_most(rig: Rig) -> None:
    one, _, _ = kept(rig, timeout_s=100_000)
    assert expected_s(rig) == 0.75 * TURN.total_seconds()
    pass_time(rig, 0.75 * TURN.total_seconds() - 60)
    rig.submit(timeout_s=1)
    assert took(one) == []


def test_the_gang_waits_for_one_short_job_if_the_last_machine_is_free_early(rig: Rig) -> None:
    one, two, gang = kept(rig)
    rig.submit(timeout_s=SHORT_S)
    assert took(one)
    turn_over(two)
    pass_time(rig, 10)
    assert expected_s(rig) == SHORT_S + 30 + 30 - 10
    submit(rig, [two], timeout_s=SHORT_S)
    assert took(two) == []
    turn_over(one)
    assert rig.places(gang) == ["lease"] * 2


def test_a_stream_of_short_jobs_does_not_delay_the_gang(rig: Rig) -> None:
    one, two, gang = kept(rig)
    # Each job runs for as long as it may.
    now, passed, ends = 0.0, 0, {one.id: 0.0, two.id: LIMIT_S - PATIENCE_S}
    expected = [WAITS_S]
    while rig.places(gang) == ["ready"]:
        submit(rig, [one, two], timeout_s=SHORT_S)
        for worker in (one, two):
            if worker.grants and ends[worker.id] > now:
                continue
            worker.look() if not worker.grants else turn_over(worker)
            if [grant.nodes for grant in worker.grants] == [1]:
                passed, ends[worker.id] = passed + 1, now + SHORT_S
        now += 10
        pass_time(rig, 10)
        if rig.count("forming"):
            expected.append(now + expected_s(rig))
        assert now <= WAITS_S + SHORT_S
    assert passed > 2
    assert expected == sorted(expected, reverse=True)


def test_urgent_jobs_of_any_length_still_go_first(rig: Rig) -> None:
    one, _, _ = kept(rig)
    rig.submit(timeout_s=1)
    urgent = rig.submit(priority=1)
    assert chances(rig, urgent)["one"] is Chance.STARTS
    assert took(one) == [urgent]


def test_a_short_job_waits_for_shorter_ones_before_it_but_not_for_long_ones(rig: Rig) -> None:
    one, _, _ = kept(rig)
    rig.submit_many(3)
    first, second = rig.submit_many(2, timeout_s=SHORT_S)
    told = {job: explain(rig.database, job).workers[0] for job in (first, second)}
    assert [(told[job].chance, told[job].ahead) for job in told] == [
        (Chance.STARTS, 0),
        (Chance.BEHIND, 1),
    ]
    assert took(one) == [first]


@pytest.mark.parametrize("passes", [True, False])
def test_only_the_first_jobs_of_a_lane_are_looked_at(rig: Rig, passes: bool) -> None:  # noqa: FBT001
    one, _, _ = kept(rig)
    rig.submit_many(LOOK_PAST if passes else LOOK_PAST + 1)
    short = rig.submit(timeout_s=SHORT_S)
    assert chances(rig, short)["one"] is (Chance.STARTS if passes else Chance.RESERVED)
    assert took(one) == ([short] if passes else [])


@pytest.mark.parametrize("passes", [True, False])
def test_only_the_first_of_many_lanes_are_looked_at(rig: Rig, passes: bool) -> None:  # noqa: FBT001
    one, _, _ = kept(rig)
    for n in range(SHOWN + 2):
        rig.submit(owner=f"o{n}", priority=0 if n < SHOWN - passes else -2)
    short = rig.submit(timeout_s=SHORT_S, owner="late", priority=-1)
    assert chances(rig, short)["one"] is (Chance.STARTS if passes else Chance.RESERVED)
    assert took(one) == ([short] if passes else [])


def test_under_a_limit_the_job_that_fits_into_it_may_be_a_later_one(rig: Rig) -> None:
    one, _, _ = kept(rig)
    rig.admin.set_queue("default", {"max_jobs": 2, "max_gpus": None})
    rig.submit()
    short = rig.submit(timeout_s=SHORT_S)
    assert took(one) == [short]


def test_a_job_that_was_passed_goes_before_those_behind_it_when_there_is_room(rig: Rig) -> None:
    one, _, _ = kept(rig)
    passed = rig.submit()
    short = rig.submit(timeout_s=SHORT_S)
    rig.submit()
    assert isinstance(one.gateway, SqlGateway)
    one.gateway._lanes = Lanes(rig.database, one.id, refresh_s=3600)
    assert took(one) == [short]
    assert [grant.job_id for grant in one.look(cpus=2, memory_mb=200, disk_mb=200)] == [passed]


def test_a_machine_that_is_kept_is_woken_for_a_short_job(rig: Rig) -> None:
    one, _, _ = kept(rig)
    with rig.listening() as heard:
        rig.submit(timeout_s=SHORT_S)
        assert Hint.read(heard()[-1]).workers == {one.id}


def test_each_turn_of_a_gang_has_time_for_short_jobs_again(rig: Rig) -> None:
    one, _, _ = kept(rig, timeout_s=100_000)
    for seconds in (TURN.total_seconds(), TURN.total_seconds()):
        pass_time(rig, seconds)
    assert expected_s(rig) == 0.75 * 2 * TURN.total_seconds()
    short = rig.submit(timeout_s=SHORT_S)
    assert took(one) == [short]
