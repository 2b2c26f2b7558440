"""Find the job that somebody names: by its id, its name, or as one of their newest jobs."""

import re

from forge_schema.database.pool import Database, Row
from forge_schema.model.errors import ForgeError
from forge_schema.model.job import JobUnknown, possible_job
from forge_schema.model.quantities import names_text

# How many of the newest jobs are searched for a name, at most: of the owner, and of all others.
LOOK = 3_000
SHOWN = 5
NEWEST = re.compile(r"@(last|[1-9]\d{0,2})", re.ASCII)
ID = re.compile(r"\d+", re.ASCII)


class JobAmbiguous(ForgeError):
    """A name could mean several jobs."""

    code = "job_ambiguous"


def job_named(database: Database, handle: str, *, owner: str, everyone: bool) -> int:
    """Return the id of the job that a handle names.

    Args:
        database: an open database.
        handle: an id; `@last` or `@1` for the owner's newest job, `@2` for the one before it; a
            name; or the beginning of a name.
        owner: whose jobs come first.
        everyone: whether other owners' jobs may be named too.

    Raises:
        JobUnknown: no job has this id or name.
        JobAmbiguous: several have the name, or begin with it.
    """
    handle = handle.strip()
    if ID.fullmatch(handle):
        return possible_job(int(handle))
    newest = NEWEST.fullmatch(handle)
    nth = None if newest is None else int(newest[1].replace("last", "1"))
    params = {"name": handle, "nth": nth, "owner": owner, "everyone": everyone}
    rows = database.rows("named_jobs", again=True, look=LOOK, shown=SHOWN, **params)
    if not handle or not rows:
        raise _unknown(handle, owner, nth)
    if rows[0]["found"] > 1:
        raise _ambiguous(handle, rows)
    found: int = rows[0]["job_id"]
    return found


def _unknown(handle: str, owner: str, nth: int | None) -> JobUnknown:
    hint = "`forge ps` lists the jobs; names are searched among the newest of them"
    if nth is None:
        return JobUnknown(f"there is no job named {handle!r}", hint=hint)
    return JobUnknown(f"{owner} has submitted no job that {handle} could mean", hint=hint)


def _ambiguous(handle: str, rows: list[Row]) -> JobAmbiguous:
    alike = all(row["name"] == handle for row in rows)
    said = [str(row["job_id"]) if alike else f"{row['job_id']} {row['name']!r}" for row in rows]
    said += [""] * (rows[0]["found"] - len(rows))
    newest = rows[0]["job_id"]
    return JobAmbiguous(
        f"{handle!r} could be job {names_text(said, SHOWN, last='or')}",
        hint=f"write the id: the newest of them is {newest}; `@last` is your newest job of all",
    )
