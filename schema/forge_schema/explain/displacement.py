"""What an explanation says of jobs that leave for others of a higher priority: on both sides."""

from collections.abc import Iterator

from forge_schema.database.pool import Database, Row
from forge_schema.model.quantities import names_text
from forge_schema.model.states import State


def displacement(database: Database, status: Row) -> Iterator[str]:
    """Yield which jobs leave for an unfinished one, and for which one it leaves, or left."""
    params = {"job_id": status["job_id"], "attempt": status["attempt"]}
    for row in database.rows("explain_displaced", again=True, **params):
        if leaving := row["leaving"]:
            some = names_text([str(job_id) for job_id in leaving])
            alone = len(leaving) == 1
            yield f"{'job' if alone else 'jobs'} {some} {'makes' if alone else 'make'} room for it"
        if row["by"] is not None:
            word = "leaves" if status["state"] == State.RUNNING else "left"
            yield f"it {word} for job {row['by']} of priority {row['priority']}"
