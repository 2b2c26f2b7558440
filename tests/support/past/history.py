"""A database with six months of history: mostly ended jobs, inserted by few statements."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from forge_schema.model.spec import JobSpec, Resources

STEPS = Path(__file__).parent
ATTEMPTS, READY, LEASES, LATER = 1_000_000, 10_000, 500, 1_000

NEEDS: tuple[dict[str, Any], ...] = (
    {"cpus": 1},
    {"cpus": 16, "memory_mb": 65_536},
    {"cpus": 48, "memory_mb": 131_072},
    {"cpus": 4, "gpus": 1, "accelerator": "cuda"},
    {"cpus": 4, "gpus": 1, "gpu_model": "*L4*"},
    {"cpus": 8, "gpus": 1, "gpu_model": "*A100*", "vram_mb": 40_000},
    {"cpus": 32, "gpus": 4, "gpu_model": "*A100*"},
    {"cpus": 64, "gpus": 8, "gpu_model": "*A100*"},
    {"cpus": 16, "gpus": 1, "gpu_model": "*H100*"},
    {"cpus": 64, "gpus": 4, "gpu_model": "*H100*"},
    {"cpus": 128, "gpus": 8, "gpu_model": "*H100*"},
    {"cpus": 16, "gpus": 2, "accelerator": "rocm"},
)
SHAPE = """
    INSERT INTO shape (
        accelerator, gpus, gpu_model, vram_mb, cpus, memory_mb, disk_mb, labels, nodes, target
    )
    VALUES (
        %(accelerator)s, %(gpus)s, %(gpu_model)s, %(vram_mb)s, %(cpus)s, %(memory_mb)s, %(disk_mb)s,
        %(labels)s, %(nodes)s, %(target)s
    )
    RETURNING id
"""
# Foreign key checks would look up every row, although the values are drawn from those tables.
SETTINGS = """
    SET session_replication_role = replica;
    SET work_mem = '512MB';
    SET synchronous_commit = off;
    SET jit = off;
"""
# A sample is 300 rows per unit of the target, and a month has at most a fifth as many rows of a
# table as there are attempts: the statistics cover all of them, so that no plan depends on the rows
# that were sampled.
PER_UNIT, MONTH = 300, 0.21
# No plan depends on the specs; sorting a sample of them would take longer than all other columns.
# What the steps drew from is gone by then, and costs nothing.
ANALYSE = (
    "DISCARD TEMP",
    "ALTER TABLE job ALTER spec SET STATISTICS 0",
    "VACUUM (ANALYZE)",
    "ALTER TABLE job ALTER spec SET STATISTICS 10",
    "ANALYZE job (spec)",
)


@dataclass(frozen=True)
class Past:
    """Counts of what such a database contains."""

    attempts: int
    jobs: int
    ready: int
    leases: int
    later: int


def fill(url: str, attempts: int = ATTEMPTS) -> Past:
    """Fill a migrated, empty database with about this many attempts; needs a superuser.

    There are 500 workers, 200 lanes and 20 owners; a hundredth as many jobs wait as there are
    attempts, and a two-thousandth run. Two calls give the same rows, except for times.
    """
    past = Past(
        attempts=attempts,
        jobs=round(attempts * 0.72),
        ready=max(attempts * READY // ATTEMPTS, 60),
        leases=max(attempts * LEASES // ATTEMPTS, 60),
        later=max(attempts * LATER // ATTEMPTS, 20),
    )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SETTINGS)
        _scale(connection, past)
        _shapes(connection)
        for step in sorted(STEPS.glob("*.sql")):
            connection.execute(step.read_text(encoding="utf-8").encode())
        _analyse(connection, past)
    return past


def _analyse(connection: psycopg.Connection[Any], past: Past) -> None:
    target = max(100, round(past.attempts * MONTH / PER_UNIT))
    connection.execute(f"SET default_statistics_target = {target}".encode())
    for statement in ANALYSE:
        connection.execute(statement)


def _scale(connection: psycopg.Connection[Any], past: Past) -> None:
    connection.execute(
        "CREATE TEMP TABLE scale AS SELECT forge_now() AS now, %s::bigint AS attempts,"
        " %s::bigint AS jobs, %s::bigint AS ready, %s::bigint AS leases, %s::bigint AS later",
        [past.attempts, past.jobs, past.ready, past.leases, past.later],
    )


def _shapes(connection: psycopg.Connection[Any]) -> None:
    connection.execute("CREATE TEMP TABLE specs (shape_id integer, spec jsonb)")
    for needs in NEEDS:
        asked = JobSpec(
            name="job",
            command=["python", "train.py", "--epochs", "90"],
            owner="ann",
            env={"WANDB_MODE": "offline"},
            resources=Resources(**needs),
        )
        shape = asked.shape()
        made = connection.execute(SHAPE, {**shape, "labels": json.dumps(shape["labels"])})
        (shape_id,) = made.fetchone() or (0,)
        connection.execute(
            "INSERT INTO specs VALUES (%s, %s)", [shape_id, json.dumps(asked.payload())]
        )
