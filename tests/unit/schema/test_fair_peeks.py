"""How many jobs of each of many lanes a claim reads."""

from __future__ import annotations

from forge_schema.model.worker import Capacity
from forge_schema.queue.claim import EXACT, LEAST_PAST, fair_peeks
from forge_schema.queue.lane import Lane

PAST = 16


def lane(number: int, share: float = 0.0, nice: int = 0, weight: float = 1.0) -> Lane:
    needs = Capacity(1, 1, 1)
    return Lane(number, needs, limited=False, owner="ann", weight=weight, share=share, nice=nice)


def test_one_job_comes_from_the_first_lane_and_its_neighbours_show_a_few() -> None:
    peeks = fair_peeks([lane(1, share=2.0), lane(2, share=1.0), lane(3, share=3.0)], 1, PAST)
    assert peeks == {1: 1 + LEAST_PAST, 2: 1 + PAST, 3: 1 + LEAST_PAST}


def test_many_jobs_are_shared_by_weight() -> None:
    lanes = [lane(1, weight=3.0), lane(2)]
    assert fair_peeks(lanes, 400, PAST) == {1: 300 + PAST // 2, 2: 100 + PAST // 2}


def test_a_few_jobs_may_all_come_from_any_lane() -> None:
    assert min(fair_peeks([lane(n) for n in range(50)], EXACT, PAST).values()) > EXACT


def test_urgent_lanes_may_have_it_all() -> None:
    lanes = [lane(1, share=100.0, nice=-5), *[lane(n) for n in range(2, 12)]]
    peeks = fair_peeks(lanes, 200, PAST)
    assert peeks[1] >= 200
    # The others too, should the urgent ones be gone.
    assert sum(peeks.values()) - peeks[1] >= 200
