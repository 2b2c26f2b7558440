"""At rest, when faults have stopped and workers have exited, nothing may be left behind."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import docker
import stamina
from chaos.check.violation import by_hand, by_sql
from forge_schema.storage.s3.store import S3Store
from forge_worker.agent.outbox import left_in
from forge_worker.worker_folder import known_id
from support.workers.worker import processes_below

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.evidence.evidence import Evidence, Row

NO_LEASE = by_sql(
    "at rest there is no lease",
    """
    SELECT
        job_id, token,
        format('held by worker %s (%s)', worker_id, coalesce(status::text, 'unknown')) AS says
    FROM lease LEFT JOIN worker ON worker.id = worker_id
    """,
)

NO_IDLE_TRANSACTION = by_sql(
    "at rest there is no idle transaction",
    """
    SELECT
        format('connection %s (%s) since %s: %s', pid, application_name, xact_start, query)
            AS says
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND state LIKE 'idle in transaction%'
    """,
)


def _folders(evidence: Evidence) -> Iterator[tuple[str, Row]]:
    for note in evidence.notes("folder"):
        for path in sorted(Path(note["path"]).glob("jobs/*")):
            yield f"{path} is left", {}


def _spools(evidence: Evidence) -> Iterator[tuple[str, Row]]:
    for note in evidence.notes("folder"):
        spool = left_in(Path(note["path"]))
        for end in spool.ends() if spool else []:
            row = {"job_id": end.fence.job_id, "token": end.fence.token}
            yield f"its end as {end.reason} waits in {note['path']}", row


def _processes(evidence: Evidence) -> Iterator[tuple[str, Row]]:
    places = [note["path"] for note in evidence.notes("folder")]
    for line in processes_below(places) if places else []:
        yield f"process {line} is left", {}
    for note in evidence.notes("process"):
        if _started(note["pid"]) == note["started"]:
            yield f"process {note['pid']}, which was below one that was killed, is left", {}


def _started(pid: int) -> int | None:
    """Return the start time of a live process, in the kernel's ticks since boot."""
    with suppress(OSError):
        told = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        state, *fields = told.rpartition(")")[2].split()
        return None if state == "Z" else int(fields[18])
    return None


def _containers(evidence: Evidence) -> Iterator[tuple[str, Row]]:
    for note in evidence.notes("engine"):
        engine = docker.DockerClient(base_url=note["url"], timeout=20)
        try:
            for name in _listed(engine, note["labels"]):
                yield f"container {name} is left", {}
            for folder in evidence.notes("folder"):
                label = f"forge.sandbox.folder={known_id(Path(folder['path']))}"
                for name in _listed(engine, label):
                    yield f"sandbox {name} is left", {}
        finally:
            engine.close()


# Podman 5.8.6 fails the whole listing if a container goes while it looks at each of them.
@stamina.retry(on=docker.errors.APIError, attempts=20, timeout=60)
def _listed(engine: docker.DockerClient, label: str) -> list[str]:
    rows = engine.api.containers(all=True, filters={"label": label})
    return [row["Names"][0].lstrip("/") for row in rows]


def _uploads(evidence: Evidence) -> Iterator[tuple[str, Row]]:
    if isinstance(evidence.store, S3Store):
        for upload in evidence.store._unfinished():
            # Of a doctor or a server that was killed while it tried the store: ended after a day.
            if "/probe/" in upload["Key"]:
                continue
            yield f"the upload of {upload['Key']} was never ended", {}


ON_DISK = (
    by_hand("at rest no folder of a job's is left", _folders),
    by_hand("at rest no end of an attempt waits in a spool", _spools),
)

REST = (
    NO_LEASE,
    NO_IDLE_TRANSACTION,
    *ON_DISK,
    by_hand("at rest no process of a worker's or a job's is left", _processes),
    by_hand("at rest no container of a job's is left", _containers),
    by_hand("at rest the store has no upload that nobody ended", _uploads),
)
