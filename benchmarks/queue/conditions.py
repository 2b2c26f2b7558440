"""What weighs on a queue in use: a long history, a deep backlog, a snapshot held open."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from forge_side import ForgeSide

HISTORY = """
WITH n AS (SELECT generate_series(1, %(jobs)s) AS n),
past AS (
    INSERT INTO job (lane_id, owner, name, spec, submitted_at)
    SELECT (SELECT min(id) FROM lane), 'owner-0', 'past', %(spec)s, clock_timestamp() FROM n
    RETURNING id
)
INSERT INTO outcome (
    job_id, state, reason, attempt, token, nonce, exit_code, finished_at, worker_id, lane_id,
    ready_at, claimed_at, devices, gpu_seconds
)
SELECT
    id, 'succeeded', 'succeeded', 1, id, gen_random_uuid(), 0, clock_timestamp(), 1,
    (SELECT min(id) FROM lane), clock_timestamp(), clock_timestamp() - interval '1 minute', '{}', 0
FROM past
"""


@contextmanager
def history(side: ForgeSide, jobs: int) -> Iterator[None]:
    """Have this many finished jobs in the tables."""
    with psycopg.connect(side.url, autocommit=True) as connection:
        spec = '{"command": ["python", "train.py"], "env": {}, "image": null}'
        for _ in range(0, jobs, 100_000):
            connection.execute(HISTORY, {"jobs": min(jobs, 100_000), "spec": spec})
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")
    yield


@contextmanager
def backlog(side: ForgeSide, jobs: int) -> Iterator[None]:
    """Have this many jobs in `ready`."""
    side.feed(jobs)
    with psycopg.connect(side.url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE ready")
        connection.execute("CHECKPOINT")
    yield


@contextmanager
def snapshot(side: ForgeSide, jobs: int) -> Iterator[None]:
    """Hold an old snapshot open, under which this many jobs pass first."""
    with psycopg.connect(side.url) as holder:
        holder.execute("SET idle_in_transaction_session_timeout = 0")
        holder.commit()
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM ready")
        side.feed(jobs + 200)
        side.pass_on(jobs, 100)
        yield
        holder.rollback()
