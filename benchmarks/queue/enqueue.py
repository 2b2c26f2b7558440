"""Submitting: Forge beside the floor."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import Any
from uuid import uuid4

import psycopg
from floor import SUBMIT
from forge_schema.database.pool import Database
from forge_schema.model.spec import JobSpec
from forge_schema.queue.queue import Queue
from measure import Compared, at_least, compared
from raw_side import RawSide
from workload import sweep

BATCH, SINGLES = 1_000, 50
SWEEP = sweep(BATCH)
PAYLOADS = [spec.payload() for spec in SWEEP]


def submits(forge_url: str, raw_url: str, rounds: int) -> Iterator[Compared]:
    """Compare submits."""
    RawSide.make(raw_url)
    with Database(forge_url) as database, psycopg.connect(raw_url, autocommit=True) as raw:
        raw.prepare_threshold = 0
        queue = Queue(database, actor="user:ann")
        for what, jobs, size in (
            ("one at a time", SINGLES, 1),
            ("batches of 1,000", BATCH, BATCH),
        ):
            yield compared(
                f"jobs/s submitted, {what}",
                partial(forge_rate, queue, SWEEP[:jobs], size),
                partial(raw_rate, raw, PAYLOADS[:jobs], size),
                rounds=rounds,
                target=at_least(0.6),
            )


def forge_rate(queue: Queue, specs: Sequence[JobSpec], size: int) -> float:
    """Return the jobs per second of submitting these, `size` at a time."""
    began = perf_counter()
    for start in range(0, len(specs), size):
        queue.submit(specs[start : start + size])
    return len(specs) / (perf_counter() - began)


def raw_rate(connection: psycopg.Connection, payloads: Sequence[Any], size: int) -> float:
    """Return the jobs per second of inserting these, `size` at a time."""
    began = perf_counter()
    for start in range(0, len(payloads), size):
        stem = uuid4().hex
        part = enumerate(payloads[start : start + size])
        jobs = [{"key": f"{stem}:{n}", "owner": "ann", "payload": one} for n, one in part]
        connection.execute(SUBMIT, {"jobs": json.dumps(jobs)}).fetchall()
    return len(payloads) / (perf_counter() - began)
