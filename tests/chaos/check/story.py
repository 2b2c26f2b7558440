"""The story of a violation: the events of its job, in order, and the broken invariant."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import psycopg
from chaos.evidence.history import read
from psycopg.rows import dict_row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chaos.check.violation import Violation

LINES = 12
# All that a database has about one job, as `at`, `token` and `what`.
TOLD = """
    SELECT at, token, format('%%s by %%s', action, actor) AS what, 1 AS place
    FROM audit
    WHERE job_id = %(job_id)s AND action NOT IN ('dispatched', 'ended')
    UNION ALL
    SELECT at, token, CASE verb
        WHEN 'granted' THEN format('token %%s is granted to worker %%s', token, worker_id)
        WHEN 'fetched' THEN format('token %%s is fetched by worker %%s', token, worker_id)
        WHEN 'renewed' THEN format(
            'token %%s is renewed%%s', token, CASE WHEN by_holder THEN '' ELSE ' by a stranger' END
        )
        ELSE format('token %%s is ended on connection %%s', token, quote_literal(connection))
    END, 2
    FROM chaos.change WHERE job_id = %(job_id)s
    UNION ALL
    SELECT finished_at, token,
        concat_ws(' ', format('attempt %%s (token %%s): %%s', attempt, token, reason), detail), 3
    FROM attempt WHERE job_id = %(job_id)s
    UNION ALL
    SELECT finished_at, token, format('the job is %%s, token %%s', state, token), 4
    FROM outcome WHERE job_id = %(job_id)s
"""


@dataclass(frozen=True)
class Line:
    """An event, with its time in seconds."""

    at: float
    what: str
    token: int | None = None


def story(violation: Violation, database_url: str, history_path: Path) -> str:
    """Describe in a few lines how a violation came about; the last line is the invariant."""
    lines = _lines(violation.job_id, database_url, history_path) if violation.job_id else []
    told = _shortened([*_merged(lines)])
    began = lines[0].at if lines else 0.0
    return "\n".join(
        [
            f"job {violation.job_id}: {violation.says}" if violation.job_id else violation.says,
            *[f"  {_after(line, began)} {line.what}" for line in told],
            f"broken: {violation.invariant}",
        ]
    )


def _lines(job_id: int, database_url: str, history_path: Path) -> list[Line]:
    with psycopg.connect(database_url, row_factory=dict_row) as connection:
        query = f"SELECT * FROM ({TOLD}) AS told ORDER BY at, place"
        rows: list[dict[str, Any]] = connection.execute(
            query.encode(), {"job_id": job_id}
        ).fetchall()
    lines = [Line(row["at"].timestamp(), row["what"], row["token"]) for row in rows]
    lines += [
        Line(entry.wall, f"a client notes: {entry}")
        for entry in read(history_path)
        if entry.values.get("job_id") == job_id
    ]
    return sorted(lines, key=lambda line: line.at)


def _merged(lines: list[Line]) -> Iterator[Line]:
    """Merge repeated events into one."""
    for what, same in groupby(lines, key=lambda line: line.what):
        group = list(same)
        times = f" ({len(group)} times)" if len(group) > 1 else ""
        yield Line(group[-1].at, what + times, group[-1].token)


def _shortened(lines: list[Line]) -> list[Line]:
    """Keep the beginning and the end, which matter for a violation."""
    if len(lines) <= LINES:
        return lines
    left_out = len(lines) - LINES + 1
    return [lines[0], Line(lines[1].at, f"… {left_out} more …"), *lines[-(LINES - 2) :]]


def _after(line: Line, began: float) -> str:
    return f"+{line.at - began:.3f} s"
