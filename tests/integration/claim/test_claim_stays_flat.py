"""A claim touches equally many pages, whatever is ahead of it, behind it, or in other lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from forge_schema.ending import finish_params
from forge_schema.model.attempt_records import LogChunkRecord
from forge_schema.model.lease import End
from forge_schema.model.states import Phase, Reason, State
from forge_schema.model.worker import WARM
from forge_schema.queue.lane import SHOWN
from forge_schema.queue.lanes import Lanes
from support.database.explain import buffers
from support.queue.rig import Worker, spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.queue.rig import Rig

# A tree one level higher costs one page more for each descent.
SLACK = 8

READY = """
    INSERT INTO ready (lane_id, nice, job_id, ready_at)
    SELECT %s, %s, n, now() FROM generate_series(%s::bigint, %s) AS n
"""
JOBS = """
    INSERT INTO job (id, lane_id, nice, owner, name, spec, submitted_at)
    OVERRIDING SYSTEM VALUE
    SELECT n, %s, %s, 'ann', 'job', '{}', now() FROM generate_series(%s::bigint, %s) AS n
"""


class Bench:
    """A queue with jobs for its worker, and the buffers that one claim touches."""

    def __init__(self, rig: Rig, connection: psycopg.Connection[Any]) -> None:
        self.rig = rig
        self.connection = connection
        self.worker: Worker = rig.worker(cpus=3000)
        self.worker.lanes = Lanes(rig.database, self.worker.id, refresh_s=3600)
        self.lane = self.lane_of()
        self.fill(self.lane, 1_000_000, 40)

    def lane_of(self, **needs: object) -> int:
        """Return the lane of jobs with these needs."""
        return self.rig.queue._submission.lane(spec(**needs))

    def fill(self, lane: int, first: int, count: int, *, nice: int = 0) -> None:
        """Put jobs into a lane."""
        last = first + count - 1
        for table in (JOBS, READY):
            self.connection.execute(table, [lane, nice, first, last])

    def analyze(self) -> None:
        self.connection.execute("ANALYZE")

    def claim(self, count: int = 1) -> list[int]:
        return [grant.fence.job_id for grant in self.worker.claim(count)]

    def cost(self, statement: str = "finish_and_claim", *, rows: int = 1) -> int:
        """Return the buffers of a statement, measured with the parameters of its latest call."""
        asked = [params for name, params in self.rig.database.ran if name == statement][-1]
        # Run once before: only a first run reads the catalog and hint bits.
        buffers(self.connection, statement, asked)
        touched, returned = buffers(self.connection, statement, asked)
        assert returned == rows
        return touched

    def cost_of_a_claim(self) -> int:
        """Return the buffers of the next claim, made as the worker would make it."""
        self.worker.lanes.forget()
        assert len(self.claim()) == 1
        return self.cost()


@pytest.fixture
def bench(rig: Rig) -> Iterator[Bench]:
    with psycopg.connect(rig.url, autocommit=True) as connection:
        yield Bench(rig, connection)


@pytest.mark.parametrize(
    ("needs", "statistics"),
    [
        ({"labels": {"zone": "moon"}}, "of an empty table"),
        ({"cpus": 4000}, "of the full table"),
        ({"memory_mb": 2_000_000_000}, "of an empty table"),
        ({"gpus": 8, "gpu_model": "h100*"}, "of the full table"),
    ],
    ids=str,
)
def test_jobs_that_no_worker_can_serve_do_not_slow_the_claim(
    bench: Bench, needs: dict[str, object], statistics: str
) -> None:
    bench.analyze()
    alone = bench.cost_of_a_claim()
    waiting = bench.lane_of(**needs)
    bench.fill(waiting, 1, 40_000, nice=-1000)
    if statistics == "of the full table":
        bench.analyze()
    crowded = bench.cost_of_a_claim()
    assert crowded <= alone + SLACK
    assert bench.rig.state(1) == State.READY


@pytest.mark.parametrize("statistics", ["of an empty table", "of the full table"])
def test_a_long_lane_costs_no_more_than_a_short_one(bench: Bench, statistics: str) -> None:
    bench.analyze()
    alone = bench.cost_of_a_claim()
    bench.fill(bench.lane, 2_000_000, 80_000)
    if statistics == "of the full table":
        bench.analyze()
    assert bench.cost_of_a_claim() <= alone + SLACK


def test_what_the_worker_has_costs_the_claim_no_pages(bench: Bench) -> None:
    bench.connection.execute("UPDATE ready SET parts = ARRAY[job_id % 3, NULL, job_id % 7]")
    bench.analyze()
    alone = bench.cost_of_a_claim()
    worker, warm = bench.worker, list(range(WARM))
    _, grants = bench.rig.queue.finish_and_claim([], worker.lanes, worker.free, warm=warm)
    assert len(grants) == 1
    assert bench.cost() <= alone + SLACK


def test_jobs_that_failed_here_and_suspected_workers_cost_the_claim_no_pages(bench: Bench) -> None:
    bench.analyze()
    alone = bench.cost_of_a_claim()
    for n in range(20):
        other = bench.rig.worker(f"other-{n}")
        bench.rig.rows(
            "UPDATE worker SET suspected_for = 'x', rests_until = forge_now() + '1 hour'"
            " WHERE id = %s",
            other.id,
        )
    bench.rig.rows(
        "UPDATE ready SET avoids = ARRAY[%s::bigint], ready_at = forge_now() WHERE job_id IN"
        " (SELECT job_id FROM ready ORDER BY job_id LIMIT 10)",
        bench.worker.id,
    )
    (first,) = bench.rig.rows("SELECT min(job_id) AS id FROM ready WHERE avoids IS NULL")
    bench.worker.lanes.forget()
    assert bench.claim() == [first["id"]]
    assert bench.cost() <= alone + SLACK


def test_many_other_lanes_that_others_serve_do_not_slow_the_claim(bench: Bench) -> None:
    bench.analyze()
    alone = bench.cost_of_a_claim()
    for n in range(100):
        bench.fill(bench.lane_of(labels={"host": f"h{n}"}), 10_000 * n + 1, 500, nice=-1000)
    assert bench.cost_of_a_claim() <= alone + SLACK


def test_an_idle_look_is_one_statement_and_touches_few_pages(bench: Bench) -> None:
    bench.analyze()
    assert len(bench.claim(1000)) == 40
    for lanes in (0, 100):
        for n in range(lanes):
            bench.fill(bench.lane_of(labels={"host": f"h{n}"}), 10_000 * n + 1, 50)
        bench.worker.lanes.forget()
        bench.rig.database.ran.clear()
        assert bench.claim() == []
        assert bench.cost() <= 20
        assert bench.rig.database.names() == [
            "match",
            *(["serves"] if lanes else []),
            "finish_and_claim",
        ]


def test_jobs_claimed_behind_an_old_snapshot_do_not_slow_the_claim(bench: Bench) -> None:
    bench.analyze()
    alone = bench.cost_of_a_claim()
    bench.fill(bench.lane, 2_000_000, 20_040)
    with psycopg.connect(bench.rig.url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1 FROM ready LIMIT 1")
        assert sum(len(bench.claim(1000)) for _ in range(20)) == 20_000
        assert len(bench.claim()) == 1
        above_the_watermark = bench.cost()
        assert above_the_watermark <= alone + SLACK
        # Without the watermark, the claim walks over every dead row.
        assert bench.cost_of_a_claim() > 10 * above_the_watermark


def test_other_leases_and_a_long_history_do_not_slow_the_verbs_of_one_lease(bench: Bench) -> None:
    bench.analyze()
    alone = verbs(bench)
    bench.fill(bench.lane, 2_000_000, 20_040)
    for _ in range(10):
        bench.claim(2000)
    crowded = verbs(bench)
    assert {verb: crowded[verb] <= alone[verb] + SLACK for verb in alone} == dict.fromkeys(
        alone, True
    ), (alone, crowded)


def verbs(bench: Bench) -> dict[str, int]:
    """Return what each verb about one lease costs."""
    (grant,) = bench.worker.claim()
    queue, costs = bench.rig.queue, {}
    bench.worker.renew(grant)
    costs["renew"] = bench.cost("renew")
    queue.report(grant.fence, Phase.RUNNING)
    costs["report"] = bench.cost("report")
    bench.rig.records.add_log_chunk(grant.fence, LogChunkRecord(0, "k", 0, 1, "ab" * 32))
    costs["add_log_chunk"] = bench.cost("add_log_chunk")
    queue.preempt(grant.fence.job_id)
    costs["preempt"] = bench.cost("preempt")
    queue.cancel(grant.fence.job_id)
    costs["cancel"] = bench.cost("cancel", rows=2)
    # Measured on the live lease without being run before, since running it ends the lease.
    ends = finish_params([End(grant.fence, Reason.EXIT_CODE)])
    bench.rig.database.ran.append(("finish", ends))
    costs["finish"] = bench.cost("finish")
    assert bench.rig.finish(grant, Reason.EXIT_CODE).accepted
    return costs


def test_a_claim_reads_as_much_for_thousands_of_owners_as_for_a_few(bench: Bench) -> None:
    bench.rig.queue.submit([spec(owner=f"o{n}") for n in range(2000) for _ in range(2)])
    for n in range(1000):
        bench.lane_of(memory_mb=2 + n)
    bench.analyze()
    assert len(bench.claim()) == 1
    assert lanes_shown(bench) <= SHOWN
    assert bench.cost() <= 100
    assert len(bench.claim(100)) == 100
    assert lanes_shown(bench) <= 100


def lanes_shown(bench: Bench) -> int:
    asked = bench.rig.database.ran[-1][1]
    return len(str(asked["lanes"]).split(","))
