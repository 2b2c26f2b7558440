"""Pages of jobs that fit a filter: found by an index, whatever the filter says."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from forge_schema.database.pool import Database, Row
from forge_schema.model.states import Reason, State
from forge_schema.read.job_filter import Filter

PAGE = 50
# For one page so many jobs are looked at, at most.
LOOK = 5_000
# Of more jobs that are ready, the newest are looked for among all jobs.
SORTABLE = 20_000
NEWEST = 2**63 - 1
REACH = ("looked", "reach", "lowest", "past")
PLACES = {State.SCHEDULED: "scheduled", State.READY: "ready", State.RUNNING: "lease"}
# What the index that is walked answers by itself.
INDEXED = {"owner", "queue", "since"}
WAYS = ("all", "lane", "sweep", "lease", "ready", "scheduled")


@dataclass(frozen=True)
class Page:
    """Some jobs, the newest first.

    Args:
        jobs: their status, with `ran_s` of the last attempt in seconds and `cost` of all so far.
        before: the id below which the next page begins; None at the end.
        looked: how many jobs were looked at. A page may have few or none of them, and yet a next.
    """

    jobs: list[Row]
    before: int | None
    looked: int


def page(
    database: Database,
    wanted: Filter,
    *,
    owner: str | None = None,
    before: int | None = None,
    count: int = PAGE,
) -> Page:
    """Return the newest jobs that fit a filter.

    Args:
        database: an open database.
        wanted: the filter.
        owner: whose jobs alone may be seen; None is everybody's.
        before: only jobs with a lower id.
        count: how many at most.
    """
    # One more than is shown tells whether there is a next page.
    params = {**_conditions(wanted), **_ways(wanted, owner), "count": count + 1, "owner": owner}
    params["look"] = LOOK if wanted.words or set(wanted.terms) - INDEXED else count + 1
    params["sortable"] = SORTABLE
    rows = database.rows("page_jobs", again=True, before=before or NEWEST, **params)
    said = {name: rows[0][name] for name in REACH}
    jobs = [{k: v for k, v in row.items() if k not in REACH} for row in rows if row["job_id"]]
    if len(jobs) > count:
        return Page(jobs[:count], jobs[count - 1]["job_id"], said["looked"])
    more = said["looked"] == said["reach"] and not said["past"]
    return Page(jobs, said["lowest"] if more else None, said["looked"])


def _ways(wanted: Filter, owner: str | None) -> dict[str, Any]:
    """Return by which indexes candidates are found."""
    in_lanes = owner is not None or bool(INDEXED & {"owner", "queue"} & set(wanted.terms))
    in_lanes = in_lanes or bool(wanted.labels)
    ways, reasons = _places(wanted)
    if ways is None:
        ways = {"lane" if in_lanes else "all"}
    return {
        "in_lanes": in_lanes,
        "by_reasons": reasons,
        "sweeps": list(wanted.values("sweep")),
        **{f"by_{way}": way in ways for way in WAYS},
    }


def _places(wanted: Filter) -> tuple[set[str] | None, list[str]]:
    """Return where jobs are that may fit, and why those ended that did; None is anywhere."""
    sweeps, reasons, states = (wanted.values(key) for key in ("sweep", "reason", "state"))
    if sweeps and not any(_is_glob(sweep) for sweep in sweeps):
        return {"sweep"}, []
    if wanted.values("worker"):
        return {"lease"}, []
    if reasons:
        return (None, []) if Reason.SUCCEEDED in reasons else (set(), list(reasons))
    if not states or State.SUCCEEDED in states:
        return None, []
    return {PLACES[State(s)] for s in states if s in PLACES}, _reasons(states)


def _reasons(states: Iterable[str]) -> list[str]:
    """Return why jobs can have ended in some states but `succeeded`."""
    found = [Reason.CANCELLED] if State.CANCELLED in states else []
    if {State.FAILED, State.DEAD} & set(states):
        found += [r for r in Reason if r not in {Reason.SUCCEEDED, Reason.CANCELLED}]
    return [reason.value for reason in found]


def _conditions(wanted: Filter) -> dict[str, Any]:
    """Return what a job must be, by the statement's parameters; None is anything."""
    labels = [[[n, _like(v) if s else "%"] for n, s, v in map(_parts, ls)] for ls in wanted.labels]
    return {
        "states": list(wanted.values("state")) or None,
        "reasons": list(wanted.values("reason")) or None,
        "kinds": list(wanted.values("kind")) or None,
        "owners": _likes(wanted, "owner"),
        "queues": _likes(wanted, "queue"),
        "names": _likes(wanted, "name"),
        "workers": _likes(wanted, "worker"),
        "in_sweeps": _likes(wanted, "sweep"),
        "words": [f"%{_like(word)}%" for word in wanted.words] or None,
        "labels": Jsonb(labels),
        "since": wanted.since,
    }


def _parts(label: str) -> tuple[str, str, str]:
    return label.partition("=")


def _likes(wanted: Filter, key: str) -> list[str] | None:
    return [_like(value) for value in wanted.values(key)] or None


def _is_glob(text: str) -> bool:
    return "*" in text or "?" in text


def _like(glob: str) -> str:
    """Return a glob as LIKE has it."""
    escaped = glob.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%").replace("?", "_")
