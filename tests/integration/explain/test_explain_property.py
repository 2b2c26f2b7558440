"""An explanation never contradicts the claim, on random fleets, queues, limits and pauses.

`FORGE_TEST_EXPLAIN_EXAMPLES=500 pytest tests/integration/explain/test_explain_property.py
--hypothesis-seed=1` tries that many examples; another seed gives other ones.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.explain import explain
from forge_schema.model.explanation import Chance
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb
from support.explain.explained_world import KINDS, WORLDS, ExplainedWorld, Worlds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forge_schema.model.explanation import Explanation

WANTED = os.environ.get("FORGE_TEST_EXPLAIN_EXAMPLES")
EXAMPLES = int(WANTED or 15)
# Alone, a job with one of these chances is taken: it only waits behind or for others.
TAKEN_ALONE = {Chance.STARTS, Chance.BEHIND, Chance.RESERVED}
# The gang that a worker keeps room for is still there.
TAKEN_BESIDE = {Chance.STARTS, Chance.BEHIND}


@pytest.fixture(scope="module")
def worlds(shared_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    folder: Path = tmp_path_factory.mktemp("locks")
    made = Worlds(shared_database_url, folder)
    yield made
    made.close()


@pytest.mark.timeout(0 if WANTED else 300)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=WANTED is None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(drawn=WORLDS, alone=st.integers(0, 100))
def test_an_explanation_says_what_the_claim_then_does(
    worlds: Worlds, drawn: dict[str, Any], alone: int
) -> None:
    with worlds.world(drawn) as world:
        waiting = world.waiting()
        said = {job: explain(world.database, job, patience_s=world.patience_s) for job in waiting}
        for member in world.members:
            chances = {job: _chance(said[job], member.id) for job in waiting}
            starting = {job for job, chance in chances.items() if chance is Chance.STARTS}
            assert world.taken(member) == starting
        if waiting:
            _check_alone(world, said[waiting[alone % len(waiting)]])


def _check_alone(world: ExplainedWorld, said: Explanation) -> None:
    for member in world.members:
        taken = TAKEN_BESIDE if member.drafted else TAKEN_ALONE
        can = _chance(said, member.id) in taken
        assert world.taken(member, of=said.job_id) == ({said.job_id} if can else set())


def _chance(said: Explanation, worker_id: int) -> Chance | None:
    """Return a job's chance on a worker; None if a limit holds the job back everywhere."""
    (found,) = [one.chance for one in said.workers if one.worker_id == worker_id]
    return None if said.limits else found


LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from(["x", "y*", "?", ""]), max_size=2)
SHAPE = st.fixed_dictionaries(
    {
        "nodes": st.sampled_from([1, 1, 1, 2]),
        "cpus": st.integers(1, 3),
        "memory_mb": st.integers(1, 3),
        "disk_mb": st.integers(1, 3),
        "gpus": st.integers(0, 3),
        "gpu_model": st.sampled_from(["*", "a100*", "t4", "nvidia*"]),
        "vram_mb": st.sampled_from([0, 16, 41]),
        "accelerator": st.sampled_from(["any", "cpu", "cuda"]),
        "target": st.sampled_from(["auto", "local", "worker"]),
        "labels": LABELS,
    }
)
GPUS = st.lists(
    st.sampled_from(
        [{"name": name, "vram_mb": vram} for name, vram in KINDS] + [{"name": "odd"}, {}]
    ),
    max_size=4,
)
MACHINE = st.fixed_dictionaries(
    {
        "cpus": st.integers(1, 3),
        "memory_mb": st.integers(1, 3),
        "disk_mb": st.integers(1, 3),
        "gpus": GPUS,
        "accelerator": st.sampled_from(["cpu", "cuda"]),
        "local": st.booleans(),
        "labels": LABELS,
        "address": st.sampled_from([None, "10.0.0.5", "10.0.0.5"]),
    }
)
# One row of each, and both ways to decide whether they fit.
BOTH = """
    SELECT
        forge_serves(s, w) AS serves, forge_fits(s, w) AS alone, forge_fit_of(s, w) AS fit
    FROM jsonb_populate_record(NULL::shape, %s) AS s, jsonb_populate_record(NULL::worker, %s) AS w
"""


@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(shape=SHAPE, machine=MACHINE)
def test_a_worker_fits_where_it_meets_every_requirement(
    worlds: Worlds, shape: dict[str, Any], machine: dict[str, Any]
) -> None:
    with worlds.undone() as connection:
        row = connection.execute(BOTH, [Jsonb(shape), Jsonb(machine)]).fetchone()
    assert row is not None
    assert row["serves"] == all(row["fit"].values())
    assert row["alone"] == (row["serves"] and shape["nodes"] == 1)
