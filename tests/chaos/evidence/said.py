"""What the jobs' programs said of themselves, from their stored logs."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from forge_schema import zstd
from forge_schema.storage import ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg
    from forge_schema.storage import Store

READERS = 8
LINE = re.compile(rb"^(from|ready to stop|stopped|all is done)(?: (\d+))?$", re.MULTILINE)
TABLE = """
    CREATE TEMP TABLE said (
        job_id bigint, token bigint, attempt smallint, word text, step bigint
    ) ON COMMIT DROP
"""
# Ranks are told apart by nothing in their lines, and each goes on from files of its own.
CHUNKS = """
    SELECT job_id, token, attempt, key FROM log_chunk
    WHERE job_id NOT IN (SELECT gang.job_id FROM gang)
    ORDER BY job_id, token, number
"""


def collect(connection: psycopg.Connection[dict[str, Any]], store: Store) -> None:
    """Make the temporary table `said`: a row for each line, with its step if it has one."""
    connection.execute(TABLE)
    chunks = connection.execute(CHUNKS).fetchall()
    with ThreadPoolExecutor(READERS) as readers:
        texts = readers.map(lambda row: _text(store, row["key"]), chunks)
        pairs = list(zip(chunks, texts, strict=True))
    with connection.cursor().copy("COPY said FROM STDIN") as copy:
        for row in _lines(pairs):
            copy.write_row(row)
    connection.execute("CREATE INDEX ON said (token)")


def _lines(pairs: list[tuple[dict[str, Any], bytes]]) -> Iterator[tuple[object, ...]]:
    attempt_of = itemgetter("job_id", "token", "attempt")
    for known, group in groupby(pairs, key=lambda pair: attempt_of(pair[0])):
        log = b"".join(text for _, text in group)
        for word, step in LINE.findall(log):
            yield (*known, word.decode(), int(step) if step else None)


def _text(store: Store, key: str) -> bytes:
    # Another invariant names those that are missing or damaged.
    with suppress(ObjectMissing, zstd.ZstdError):
        return zstd.decompress(store.get(key))
    return b""
