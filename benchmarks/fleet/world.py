"""The queue of the benchmark: a deep backlog of many owners, and a fleet in its midst.

Half of the workers have a GPU and a job. The others have none, and wait: their lanes exist, one for
each owner, and are empty but for the job that is submitted every second.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

import psycopg
from forge_schema.access import tokens
from forge_schema.access.tokens import TokenKind
from forge_schema.database.pool import Database
from forge_schema.model.lease import Fence
from forge_schema.model.spec import RUNS, JobSpec, Resources
from forge_schema.model.worker import Capacity
from forge_schema.queue.queue import Queue
from psycopg.types.json import Jsonb

GPU_MODEL, VRAM_MB, CPUS, MEMORY_MB, DISK_MB = "H100", 81_559, 8, 65_536, 500_000
ON_GPU = Resources(gpus=1, cpus=CPUS, memory_mb=MEMORY_MB, disk_mb=1_000)
ON_CPU = Resources(cpus=CPUS, memory_mb=MEMORY_MB, disk_mb=1_000)
TEMPLATE = "fleet_world"
BACKLOG = """
WITH many AS (
    INSERT INTO job (lane_id, owner, name, spec, submitted_at)
    SELECT job.lane_id, job.owner, job.name, job.spec, clock_timestamp()
    FROM generate_series(1, %(each)s), job JOIN ready ON ready.job_id = job.id
    RETURNING id, lane_id, submitted_at
)
INSERT INTO ready (lane_id, nice, job_id, ready_at) SELECT lane_id, 0, id, submitted_at FROM many
"""
WORKERS = """
INSERT INTO worker (
    id, name, boot_id, status, accelerator, gpus, cpus, memory_mb, disk_mb, labels, token_hash,
    registered_at, connected_at, last_seen_at
)
SELECT
    one.id, 'fleet-' || one.id, one.boot_id,
    CASE WHEN one.gpu THEN 'busy' ELSE 'idle' END::worker_status,
    CASE WHEN one.gpu THEN 'cuda' ELSE 'cpu' END,
    CASE WHEN one.gpu THEN %(gpus)s ELSE '[]'::jsonb END, %(cpus)s, %(memory_mb)s, %(disk_mb)s,
    %(labels)s, one.token_hash, clock_timestamp(), clock_timestamp(), clock_timestamp()
FROM unnest(%(ids)s::bigint[], %(boots)s::uuid[], %(has_gpu)s::boolean[], %(hashes)s::bytea[])
    AS one (id, boot_id, gpu, token_hash)
"""
LEASES = """
WITH gpu AS (
    SELECT id, row_number() OVER (ORDER BY id) AS n FROM worker WHERE accelerator = 'cuda'
),
picked AS (
    SELECT ready.*, row_number() OVER (ORDER BY job_id) AS n
    FROM ready ORDER BY job_id LIMIT (SELECT count(*) FROM gpu)
),
gone AS (
    DELETE FROM ready USING picked
    WHERE ready.lane_id = picked.lane_id AND ready.nice = picked.nice
        AND ready.job_id = picked.job_id
)
INSERT INTO lease (
    job_id, rank, worker_id, lane_id, nice, attempt, failures, losses, preemptions, ready_at,
    claimed_at, started_at, expires_at, phase
)
SELECT
    picked.job_id, 0, gpu.id, picked.lane_id, picked.nice, 1, 0, 0, 0, picked.ready_at,
    clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '10 minutes', 'running'
FROM picked JOIN gpu USING (n)
RETURNING worker_id, job_id, token, nonce
"""


@dataclass
class Simulated:
    """A worker as the queue sees it."""

    id: int
    boot_id: UUID
    token: str
    has_gpu: bool
    fence: Fence | None = None

    @property
    def room(self) -> Capacity:
        """What is free when it runs nothing."""
        room = Capacity(CPUS, MEMORY_MB, DISK_MB)
        if not self.has_gpu:
            return room
        return Capacity(CPUS, MEMORY_MB, DISK_MB, 1, GPU_MODEL, VRAM_MB, 1)


def waiting_job(owner: int) -> JobSpec:
    """Return a job for the workers that wait."""
    return JobSpec(name="small", command=["true"], owner=f"owner-{owner}", resources=ON_CPU)


def make_world(url: str, owners: int, jobs: int) -> None:
    """Make the lanes of all owners, and this many ready jobs that need a GPU."""
    big = [waiting_job(n).model_copy(update={"resources": ON_GPU}) for n in range(owners)]
    # Not yet ready, so that the lanes are there and empty.
    small = [waiting_job(n).model_copy(update={"delay_s": 86_400.0}) for n in range(owners)]
    with Database(url) as database:
        Queue(database, actor="user:ann").submit([*big, *small])
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(BACKLOG, {"each": max(0, jobs // owners - 1)})
        connection.execute("VACUUM ANALYZE")


def make_fleet(url: str, size: int, one_idle_in: int = 2) -> list[Simulated]:
    """Add workers, and give those that have a GPU a job; the others are idle."""
    minted = [tokens.mint(TokenKind.WORKER, str(n)) for n in range(1, size + 1)]
    fleet = [
        Simulated(n, uuid4(), token, has_gpu=n % one_idle_in != 1)
        for n, (token, _) in enumerate(minted, 1)
    ]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(WORKERS, _columns(fleet, [digest for _, digest in minted]))
        leases = connection.execute(LEASES).fetchall()
        connection.execute("ANALYZE worker, lease")
    by_id = {one.id: one for one in fleet}
    for worker_id, job_id, token, nonce in leases:
        by_id[worker_id].fence = Fence(job_id, token, nonce)
    return fleet


def _columns(fleet: Sequence[Simulated], digests: Sequence[bytes]) -> dict[str, object]:
    gpu = {"uuid": "GPU-0", "name": GPU_MODEL, "vram_mb": VRAM_MB, "vendor": "nvidia"}
    return {
        "ids": [one.id for one in fleet],
        "boots": [one.boot_id for one in fleet],
        "has_gpu": [one.has_gpu for one in fleet],
        "hashes": list(digests),
        "gpus": Jsonb([gpu]),
        "cpus": CPUS,
        "memory_mb": MEMORY_MB,
        "disk_mb": DISK_MB,
        "labels": Jsonb({RUNS: "images,projects"}),
    }
