"""Pages of the audit trail, newest first; the cost of a page is bounded."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Self

from forge_schema.database.pool import Database, Row
from forge_schema.model.fields import LARGEST

PAGE = 100
# Maximum number of actions examined for one page.
REACH = 5000


class Place(NamedTuple):
    """Where a page begins: after this event, and after the submit of this job."""

    event: int = LARGEST
    job: int = LARGEST

    @classmethod
    def read(cls, text: str) -> Self:
        event, _, job = text.partition(".")
        return cls(int(event), int(job))

    def __str__(self) -> str:
        return f"{self.event}.{self.job}"

    def after(self, acts: Iterable[Row]) -> "Place":
        """Return the place after these actions, which follow this one."""
        place = self
        for act in acts:
            if act["submitted"] is None:
                place = place._replace(event=act["id"])
            else:
                place = place._replace(job=act["submitted"])
        return place


NEWEST = Place()


@dataclass(frozen=True, slots=True)
class Wanted:
    """A filter of actions: parts of the actor's and action's names, a job, a worker."""

    actor: str | None = None
    action: str | None = None
    job_id: int | None = None
    worker_id: int | None = None
    before: Place = NEWEST


@dataclass(frozen=True, slots=True)
class Page:
    """A page of actions; `before` is where the next page begins, None if this is the last.

    `reached` is how far back the search went, if its limit ended the page.
    """

    acts: list[Row]
    before: Place | None
    reached: datetime | None = None


def page(database: Database, wanted: Wanted, *, count: int = 50) -> Page:
    """Return up to `count` of the newest matching actions before a given one."""
    count = min(count, PAGE)
    params = {
        "actor": wanted.actor,
        "action": wanted.action,
        "worker_id": wanted.worker_id,
        "before": wanted.before.event,
        "before_job": wanted.before.job,
        "count": count + 1,
    }
    if wanted.job_id is not None:
        rows = database.rows("page_job_trail", again=True, job_id=wanted.job_id, **params)
    else:
        rows = database.rows("page_trail", again=True, reach=REACH, **params)
    return _page(rows, wanted.before, count)


def _page(rows: list[Row], before: Place, count: int) -> Page:
    acts = [row for row in rows if row["action"] is not None]
    if len(acts) > count:
        return Page(acts[:count], before.after(acts[:count]))
    if rows and rows[0]["looked"] >= REACH:
        return Page(acts, Place(rows[0]["reached"], rows[0]["reached_job"]), rows[0]["reached_at"])
    return Page(acts, None)
