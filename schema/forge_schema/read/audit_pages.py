"""Pages of the audit trail, newest first; the cost of a page is bounded."""

from dataclasses import dataclass
from datetime import datetime

from forge_schema.database.pool import Database, Row

PAGE = 100
# Maximum number of actions examined for one page.
REACH = 5000
LAST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Wanted:
    """A filter of actions: parts of the actor's and action's names, a job, a worker."""

    actor: str | None = None
    action: str | None = None
    job_id: int | None = None
    worker_id: int | None = None
    before: int | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A page of actions; `before` is where the next page begins, None if this is the last.

    `reached` is how far back the search went, if its limit ended the page.
    """

    acts: list[Row]
    before: int | None
    reached: datetime | None = None


def page(database: Database, wanted: Wanted, *, count: int = 50) -> Page:
    """Return up to `count` of the newest matching actions before a given one."""
    count = min(count, PAGE)
    params = {
        "actor": wanted.actor,
        "action": wanted.action,
        "worker_id": wanted.worker_id,
        "before": LAST if wanted.before is None else wanted.before,
        "count": count + 1,
    }
    if wanted.job_id is not None:
        rows = database.rows("page_job_trail", again=True, job_id=wanted.job_id, **params)
        return _page(rows, count)
    return _page(database.rows("page_trail", again=True, reach=REACH, **params), count)


def _page(rows: list[Row], count: int) -> Page:
    acts = [row for row in rows if row["id"] is not None]
    if len(acts) > count:
        return Page(acts[:count], acts[count - 1]["id"])
    if rows and rows[0]["looked"] >= REACH:
        return Page(acts, rows[0]["reached"], rows[0]["reached_at"])
    return Page(acts, None)
