"""The evidence: a snapshot of the database, the store, and the history."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from chaos.evidence import said
from chaos.evidence.history import Entry, read
from forge_schema.model.states import BUDGETS
from forge_schema.storage import open_store
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forge_schema.storage import Store

Row = dict[str, Any]

# told: the history. held: every lease ever granted, `finished_at` NULL while it is live; its GPUs
# were free at `freed_at`, once the program had ended.
# gang: the jobs on several machines; `by_master` if the success of rank 0 ends the run.
# tried: the attempts with the budget that each was charged to, of a gang as its rank 0 the
# one of the member that failed first; a retry begins a new era of budgets. A failure that is blamed
# on the checkpoint that the attempt began with is free, as are some failed starts, and to make room
# for another job or a budget; but not where the release before counts.
TABLES = """
    CREATE TEMP TABLE told (
        wall float8, kind text, job_id bigint, "values" jsonb
    ) ON COMMIT DROP;
    CREATE TEMP TABLE held ON COMMIT DROP AS
        SELECT job_id, rank, attempt, token, nonce, worker_id, ready_at, claimed_at, started_at,
            finished_at, reason, detail, devices, least(finished_at, claimed_at + make_interval(
                secs => nullif(gpu_seconds, 0) / nullif(cardinality(devices), 0)
            )) AS freed_at
        FROM attempt
        UNION ALL
        SELECT job_id, rank, attempt, token, nonce, worker_id, ready_at, claimed_at, started_at,
            NULL, NULL, NULL, devices, NULL
        FROM lease;
    CREATE TEMP TABLE gang ON COMMIT DROP AS
        SELECT id AS job_id, (spec ->> 'nodes')::integer AS nodes,
            coalesce(spec ->> 'max_nodes', spec ->> 'nodes')::integer AS max_nodes,
            coalesce(spec ->> 'launcher' = 'ray', false) AS by_master
        FROM job WHERE (spec ->> 'nodes')::integer > 1;
    CREATE TEMP TABLE decisive ON COMMIT DROP AS
        SELECT attempt.job_id, attempt, rank, token, worker_id, reason, finished_at
        FROM attempt WHERE attempt.job_id NOT IN (SELECT gang.job_id FROM gang)
        UNION ALL
        SELECT job_id, attempt, 0, token, worker_id, reason, finished_at
        FROM (
            SELECT DISTINCT ON (member.job_id, attempt) member.*
            FROM attempt AS member JOIN gang USING (job_id)
            ORDER BY member.job_id, attempt, reason IN ('succeeded', 'run_ended'),
                CASE WHEN reason NOT IN ('succeeded', 'run_ended') THEN finished_at END, rank
        ) AS first;
    CREATE TEMP TABLE tried ON COMMIT DROP AS
        SELECT attempt.*,
            CASE
                WHEN attempt.attempt IN (
                    SELECT beginning.attempt FROM beginning
                    WHERE beginning.job_id = attempt.job_id AND beginning.blamed
                )
                    THEN 'free'
                WHEN budget = 'preemptions'
                    AND forge_made_room(attempt.job_id, attempt.attempt)
                    AND attempt.worker_id NOT IN (
                        SELECT id FROM worker WHERE starts_with(name, 'old')
                    )
                    THEN 'free'
                WHEN attempt.reason = 'start_failed'
                    AND row_number() OVER (
                        PARTITION BY attempt.job_id, rank, attempt.reason ORDER BY attempt
                    ) <= 3
                    AND row_number() OVER (
                        PARTITION BY attempt.job_id, rank, attempt.reason, worker_id
                        ORDER BY attempt
                    ) = 1
                    THEN 'free'
                ELSE budget
            END AS budget, (
            SELECT count(*) FROM event
            WHERE event.job_id = attempt.job_id AND action = 'retried'
                AND (event.detail ->> 'attempt')::integer < attempt.attempt
        ) AS era
        FROM decisive AS attempt
        JOIN jsonb_each_text({budgets}) AS charged (reason, budget)
            ON charged.reason = attempt.reason::text;
    CREATE INDEX ON told (kind, job_id);
    CREATE INDEX ON held (job_id, token);
    CREATE INDEX ON tried (job_id, attempt);
"""


@dataclass(frozen=True)
class Evidence:
    """The data that the invariants are checked against."""

    connection: psycopg.Connection[Row]
    store: Store
    entries: list[Entry]

    def rows(self, query: str) -> list[Row]:
        return self.connection.execute(query.encode()).fetchall()

    def notes(self, kind: str) -> list[dict[str, Any]]:
        """Return the values of all entries of a kind."""
        return [entry.values for entry in self.entries if entry.kind == kind]


@contextmanager
def evidence(database_url: str, store_url: str, history_path: Path) -> Iterator[Evidence]:
    """Open all the evidence; later changes to the database are not visible."""
    entries = list(read(history_path))
    with psycopg.connect(database_url, row_factory=dict_row) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        connection.execute(TABLES.replace("{budgets}", _budgets()).encode())
        _tell(connection, entries)
        store = open_store(store_url)
        said.collect(connection, store)
        connection.execute("ANALYZE")
        yield Evidence(connection, store, entries)
        connection.rollback()


def _budgets() -> str:
    pairs = ", ".join(f"'{reason}', '{budget}'" for reason, budget in BUDGETS.items())
    return f"jsonb_build_object({pairs})"


def _tell(connection: psycopg.Connection[Row], entries: list[Entry]) -> None:
    with connection.cursor().copy('COPY told (wall, kind, job_id, "values") FROM STDIN') as copy:
        for entry in entries:
            values = entry.values
            copy.write_row((entry.wall, entry.kind, values.get("job_id"), Jsonb(values)))
