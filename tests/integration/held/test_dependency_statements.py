"""What the statements about jobs that wait for others read and lock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest
from forge_schema.model.states import State
from forge_schema.queue.cancel_retry import JobActs
from support.queue.rig import spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.queue.rig import Rig

# What this transaction has read of the table.
READ = """
SELECT seq_tup_read + idx_tup_fetch AS read FROM pg_stat_xact_user_tables
WHERE relname = 'dependency'
"""


@pytest.mark.parametrize("verb", ["cancel the parent", "cancel the children", "explain a child"])
def test_the_dependencies_of_other_jobs_are_not_read(rig: Rig, verb: str) -> None:
    parent, *others = rig.submit_many(3)
    rig.queue.submit([spec(after_any=others)] * 1000)
    children = rig.queue.submit([spec(after_ok=[parent])] * 20)
    with rig.uncommitted() as queue:
        if verb == "explain a child":
            queue.database.rows("explain_job", job_id=children[0])
        else:
            acts = JobActs(queue.database, owner=None, actor="user:bob")
            acts.cancel([parent] if verb == "cancel the parent" else children)
        with queue.database.transaction() as connection:
            row = connection.execute(READ).fetchone()
    assert row is not None
    assert row["read"] < 1000
    wanted = "held" if verb == "explain a child" else "cancelled"
    assert {rig.state(job).value for job in children} == {wanted}


@pytest.mark.parametrize("verb", ["cancel", "submit"])
def test_leases_are_locked_before_held_jobs_as_an_end_does(rig: Rig, verb: str) -> None:
    parent = rig.submit()
    grant = rig.worker().claim_one()
    child = rig.submit(after_any=[parent])
    acts = JobActs(rig.database, owner=None, actor="user:bob")
    verbs: dict[str, Callable[[], object]] = {
        "cancel": lambda: acts.cancel([parent, child]),
        "submit": lambda: rig.submit(after_any=[parent, child]),
    }
    with ThreadPoolExecutor(1) as pool:
        with psycopg.connect(rig.url) as other:
            other.execute("SELECT FROM lease FOR UPDATE")
            done = pool.submit(verbs[verb])
            rig.wait_until_blocked()
            other.execute("SELECT FROM held FOR UPDATE NOWAIT")
        done.result(timeout=120)
    rig.finish(grant)
    assert rig.state(child) == (State.CANCELLED if verb == "cancel" else State.READY)
