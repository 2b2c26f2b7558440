"""Every verb of the queue at once, by many workers, with sweepers, crashes and zombies."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import product
from typing import TYPE_CHECKING

from chaos.check.invariants import violations
from chaos.clients.job_mix import URGENT_QUEUE
from chaos.clients.limits import Changing
from chaos.evidence.history import History
from chaos.evidence.witness import install
from forge_schema.database.pool import Database
from forge_schema.model.admin import OwnerSettings
from forge_schema.queue.limits import Limits
from support.at_once import at_once
from support.queue.racers import ASKING_OWNER, AT_ONCE, OWNERS, SWEEPS, Course, Racer

if TYPE_CHECKING:
    from pathlib import Path

LEFT = """
    SELECT DISTINCT detail ? 'guaranteed_to' AS for_guarantee FROM event WHERE action = 'displaced'
"""
SEED, RACERS, SWEEPERS, JOBS = 20_261_123, 8, 2, 250


def test_no_invariant_breaks_when_all_verbs_race(database_url: str, tmp_path: Path) -> None:
    install(database_url)
    (tmp_path / "store").mkdir()
    history = History(tmp_path / "history.jsonl")
    for owner, sweep in product([*OWNERS, ASKING_OWNER], SWEEPS):
        history.note("limited", of="sweep", name=f"{owner}/{sweep}", max_jobs=AT_ONCE)
    with ExitStack() as stack:
        database = stack.enter_context(Database(database_url))
        limits = Changing(SEED, history, database)
        admin = Limits(database, actor="user:root")
        admin.limit_owner(ASKING_OWNER, OwnerSettings(approve_cost=0))
        admin.set_queue(URGENT_QUEUE, {"max_jobs": 3, "preempts_after_s": 0})
        admin.set_queue("default", {"preempts_after_s": 0})
        admin.limit_owner(OWNERS[0], OwnerSettings(guaranteed_gpus=8))
        course = Course(database_url, SEED, JOBS, history, limits)
        racers = [stack.enter_context(Racer(course, f"w{n}")) for n in range(RACERS)]
        at_once(
            course.watch,
            course.limit,
            *[course.sweep] * SWEEPERS,
            *[racer.race for racer in racers],
        )
        with database.transaction() as connection:
            left = connection.execute(LEFT).fetchall()
    history.close()
    assert len(course.jobs) == JOBS
    # Of which kind depends on the machine; `test_guarantees` has both.
    assert left
    assert violations(database_url, (tmp_path / "store").as_uri(), history.path) == []
