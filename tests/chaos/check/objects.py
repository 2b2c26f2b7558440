"""Stored objects and their index rows."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from chaos.check.violation import by_hand, by_sql
from chaos.clients.programs import DAMAGED
from forge_schema import zstd
from forge_schema.storage import ObjectMissing
from forge_schema.storage.manifest import CheckpointUnsound, Manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.evidence.evidence import Evidence, Row
    from forge_schema.storage import Store

READERS = 8

OWN_PREFIX = by_sql(
    "what an attempt stored lies under its own mark",
    """
    SELECT
        indexed.job_id, indexed.token,
        format('%s of attempt %s lies at %s', what, indexed.attempt, key) AS says
    FROM (
        SELECT 'a log chunk' AS what, job_id, token, attempt, key FROM log_chunk
        UNION ALL SELECT 'a checkpoint', job_id, token, attempt, key FROM checkpoint
        UNION ALL SELECT 'an artifact', job_id, token, attempt, key FROM artifact
    ) AS indexed
    LEFT JOIN held
        ON held.job_id = indexed.job_id AND held.token = indexed.token
        AND held.attempt = indexed.attempt
    WHERE held.token IS NULL OR NOT starts_with(key, format(
        'jobs/%s/%s-%s-%s/', indexed.job_id, indexed.attempt, indexed.token,
        left(replace(nonce::text, '-', ''), 12)
    ))
    """,
)

CONTIGUOUS = by_sql(
    "the log of an attempt has no gap and no byte twice",
    """
    SELECT
        job_id, token,
        format('chunk %s begins at byte %s, expected chunk %s at byte %s', number, start,
            coalesce(before + 1, 0), coalesce(extent, 0)) AS says
    FROM (
        SELECT *, lag(number) OVER earlier AS before, lag(start + bytes) OVER earlier AS extent
        FROM log_chunk
        WINDOW earlier AS (PARTITION BY job_id, token, rank ORDER BY number)
    ) AS ordered
    WHERE (number, start) IS DISTINCT FROM (coalesce(before + 1, 0), coalesce(extent, 0))
    """,
)

ACCEPTED_WROTE = by_sql(
    "what a succeeded job was to write was written by the accepted attempt",
    """
    SELECT DISTINCT
        told.job_id, outcome.token,
        format('succeeded by attempt %s, which wrote no %s', outcome.attempt, wanted.name) AS says
    FROM told
    CROSS JOIN jsonb_array_elements_text("values" -> 'writes') AS wanted (name)
    JOIN outcome USING (job_id)
    WHERE kind = 'submitted' AND state = 'succeeded' AND NOT EXISTS (
        SELECT FROM artifact
        WHERE artifact.job_id = told.job_id AND artifact.token = outcome.token
            AND artifact.path = wanted.name
    )
    """,
)

# The job itself compares what it is given with what it wrote.
RESTORED = by_sql(
    "what a job finds of its checkpoint is what it wrote",
    f"""
    SELECT job_id, token, format('attempt %s found another checkpoint', attempt) AS says
    FROM attempt WHERE reason = 'exit_code' AND exit_code = {DAMAGED}
    """,
)

STORED = """
    SELECT 'chunk' AS what, job_id, token, key, bytes, sha256 FROM log_chunk
    UNION ALL SELECT 'artifact', job_id, token, key, bytes, sha256 FROM artifact
    UNION ALL SELECT 'checkpoint', job_id, token, key, bytes, NULL FROM checkpoint
"""


def _unsound(evidence: Evidence) -> Iterator[tuple[str, Row]]:
    rows = evidence.rows(STORED)
    with ThreadPoolExecutor(READERS) as readers:
        faults = readers.map(lambda row: _fault(evidence.store, row), rows)
        for row, fault in zip(rows, faults, strict=True):
            if fault:
                yield f"{row['key']} {fault}", row


def _fault(store: Store, row: Row) -> str | None:
    try:
        content = store.get(row["key"])
        if row["what"] == "checkpoint":
            return _fault_of_checkpoint(store, content, row)
    except (ObjectMissing, CheckpointUnsound) as error:
        return f"is not whole: {error.message}"
    data = zstd.decompress(content) if row["what"] == "chunk" else content
    sound = (len(data), hashlib.sha256(data).hexdigest()) == (row["bytes"], row["sha256"])
    return None if sound else f"has {len(data)} bytes, or others than its row says"


def _fault_of_checkpoint(store: Store, content: bytes, row: Row) -> str | None:
    manifest = Manifest.loaded(content, job_id=row["job_id"])
    if manifest.size != row["bytes"]:
        return "has not the size that its row says"
    packs = {entry.key: b"" for entry in manifest.files if entry.pack_bytes}
    packs = {key: store.get(key) for key in packs}
    for extent in (extent for entry in manifest.files for extent in entry.extents):
        content = store.get(extent.key) if extent.key not in packs else packs[extent.key]
        part = content[extent.at :][: extent.size] if extent.key in packs else content
        if hashlib.sha256(part).hexdigest() != extent.sha256:
            return f"has another object at {extent.key}"
    return None


SOUND = by_hand("every indexed object is in the store, with the bytes of its row", _unsound)

OBJECTS = (OWN_PREFIX, CONTIGUOUS, ACCEPTED_WROTE, RESTORED, SOUND)
