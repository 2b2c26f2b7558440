"""The columns of `forge ps`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_client.cli.show.output import Column, ago
from forge_client.cli.show.standing import metrics_text, progress, ran, why, workers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forge_schema.model.job import ListedJob

MOST_METRICS = 2
NO_JOBS = "no jobs yet; `forge submit . -- python train.py` submits one"
COLUMNS: list[Column] = [
    ("ID", lambda j: j.job_id),
    ("NAME", lambda j: j.name),
    ("STATE", lambda j: j.state),
    ("PROGRESS", progress),
    ("TIME", lambda j: ran(j.ran_s)),
    ("LAST", lambda j: metrics_text(j.metrics, MOST_METRICS)),
    ("ATTEMPT", lambda j: j.attempt or ""),
    ("WORKER", workers),
    ("WHY", lambda j: why(j) or "no worker can run it" * j.unservable),
    ("QUEUE", lambda j: j.queue),
    ("OWNER", lambda j: j.owner),
    ("SUBMITTED", lambda j: ago(j.submitted_at)),
]
# A run of a range of machines may have more than the job needs.
NODES: Column = ("NODES", lambda j: len(j.workers) or j.nodes)
# What a narrow terminal does without, the least important first.
DROP = ("OWNER", "QUEUE", "WORKER", "ATTEMPT", "SUBMITTED", "NODES", "LAST", "PROGRESS", "TIME")


def columns(rows: Sequence[ListedJob]) -> list[Column]:
    """Return the columns for some jobs."""
    several = any(row.nodes > 1 for row in rows)
    return [*COLUMNS[:3], NODES, *COLUMNS[3:]] if several else COLUMNS
