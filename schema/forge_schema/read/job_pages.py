"""Pages of jobs that match a filter, always found by an index, and the job that somebody names."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from forge_schema.database.pool import Database, Row
from forge_schema.job_filter import FIGURES, Bound, Filter
from forge_schema.model.errors import ForgeError, nearest
from forge_schema.model.job import JobUnknown, possible_job
from forge_schema.model.quantities import moment, names_text
from forge_schema.model.states import Reason, State, in_words

PAGE = 50
# Maximum number of jobs examined for one page.
LOOK = 5_000
# With more ready jobs than this, the newest are searched among all jobs.
SORTABLE = 20_000
NEWEST = 2**63 - 1
REACH = ("looked", "reach", "lowest", "past")
PLACES = {
    State.SCHEDULED: "scheduled",
    State.HELD: "held",
    State.READY: "ready",
    State.RUNNING: "lease",
}
CANCELS = (Reason.CANCELLED, Reason.DEPENDENCY_FAILED)
# Keys that the index itself answers.
INDEXED = {"owner", "team", "queue", "since"}
# How many of the newest jobs are counted by how they ended, and how many of those that wait.
COUNTED, MOST_COUNTED = 1_000, 10_000
WAYS = (
    *("all", "lane", "sweep", "experiment", "tag", "archived", "lease", "ready", "scheduled"),
    *("held", "ids"),
)

# How many of the newest jobs are searched for a name, at most: of the owner, and of all others.
LOOK_NAMED = 3_000
SHOWN, COMPARED = 5, 500
NTH_NEWEST = re.compile(r"@(last|[1-9]\d{0,2})", re.ASCII)
ID = re.compile(r"\d+", re.ASCII)


@dataclass(frozen=True)
class JobPage:
    """A page of jobs, newest first.

    Args:
        jobs: their status, with the last attempt's `ran_s` in seconds and the total `cost`.
        before: the id below which the next page begins; None at the end.
        looked: how many jobs were examined. Even an empty page may have a next one.
    """

    jobs: list[Row]
    before: int | None
    looked: int


def page(
    database: Database,
    wanted: Filter,
    *,
    scope: list[str] | None = None,
    before: int | None = None,
    count: int = PAGE,
) -> JobPage:
    """Return the newest jobs that match a filter.

    Args:
        database: an open database.
        wanted: the filter.
        scope: the owners whose jobs are visible; None means all owners.
        before: only jobs with a lower id.
        count: maximum number of jobs.
    """
    # One extra row tells whether there is a next page.
    ways = _ways(wanted, scope)
    params = {**_conditions(database, wanted), **ways, "count": count + 1, "scope": scope}
    kept = {*wanted.terms} | {key for key, _ in wanted.repeated}
    narrows = wanted.words or kept - INDEXED - {"label"}
    params |= {"sortable": SORTABLE, "before": before or NEWEST}
    if not narrows:
        newest = _page(database, {**params, "look": count + 1}, count)
        # Among the newest jobs are archived ones, which are left out.
        if newest.before is None or len(newest.jobs) == count:
            return newest
    return _page(database, {**params, "look": LOOK}, count)


@dataclass(frozen=True)
class StateCounts:
    """How many jobs have each state; of those that ended, `more` than the newest if it is set."""

    jobs: Mapping[str, int]
    more: bool


def counts(
    database: Database, wanted: Filter, *, scope: list[str] | None = None
) -> StateCounts | None:
    """Return how many jobs there are by state, which the filter need not name.

    None if the filter narrows by anything for which every job would have to be looked at.
    """
    wanted = wanted.having("state")
    if wanted.words or wanted.repeated or set(wanted.terms) - INDEXED:
        return None
    conditions = _conditions(database, wanted)
    params = {name: conditions[name] for name in ("owners", "teams", "queues", "since")}
    rows = database.rows(
        "count_states",
        again=True,
        **params,
        in_lanes=_ways(wanted, scope)["in_lanes"],
        scope=scope,
        look=COUNTED,
        most=MOST_COUNTED,
    )
    jobs = Counter[str]()
    for row in rows:
        jobs[in_words(row["state"])] += row["jobs"]
    return StateCounts(jobs, any(row["more"] for row in rows))


def _page(database: Database, params: dict[str, Any], count: int) -> JobPage:
    rows = database.rows("page_jobs", again=True, **params)
    reach = {name: rows[0][name] for name in REACH}
    jobs = [{k: v for k, v in row.items() if k not in REACH} for row in rows if row["job_id"]]
    if len(jobs) > count:
        return JobPage(jobs[:count], jobs[count - 1]["job_id"], reach["looked"])
    more = reach["looked"] == reach["reach"] and not reach["past"]
    return JobPage(jobs, reach["lowest"] if more else None, reach["looked"])


def among(
    database: Database, wanted: Filter, job_ids: Collection[int], *, scope: list[str] | None = None
) -> list[Row]:
    """Return those of some jobs that match a filter, as on a page."""
    chosen = {f"by_{way}": way == "ids" for way in WAYS} | {"archived": None}
    named_ids = {*map(int, wanted.values("id"))} or {*job_ids}
    ids = [job_id for job_id in job_ids if job_id in named_ids]
    params = {**_conditions(database, wanted), **_ways(wanted, scope), **chosen, "ids": ids}
    many = {"look": len(job_ids), "count": len(job_ids), "sortable": SORTABLE, "by_reasons": []}
    rows = database.rows("page_jobs", again=True, before=NEWEST, scope=scope, **{**params, **many})
    return [row for row in rows if row["job_id"]]


def _ways(wanted: Filter, scope: list[str] | None) -> dict[str, Any]:
    """Return the indexes that find candidates, and what is looked up in them."""
    in_lanes = scope is not None or bool((INDEXED - {"since"}) & set(wanted.terms))
    in_lanes = in_lanes or bool(wanted.each("label"))
    ways, reasons = ({"ids"}, list[str]()) if wanted.values("id") else _places(wanted)
    if ways is None:
        ways = {"lane" if in_lanes else "all"}
    return {
        "in_lanes": in_lanes,
        "by_reasons": reasons,
        "ids": [int(job_id) for job_id in wanted.values("id")],
        "sweeps": list(wanted.values("sweep")),
        "experiments": list(wanted.values("experiment")),
        "some_tags": next(_exact_tags(wanted), []),
        **{f"by_{way}": way in ways for way in WAYS},
    }


def _places(wanted: Filter) -> tuple[set[str] | None, list[str]]:
    """Return the states and reasons of jobs that may match; None means any."""
    if way := _named_way(wanted):
        return {way}, []
    reasons = wanted.values("reason")
    if reasons:
        return (None, []) if Reason.SUCCEEDED in reasons else (set(), list(reasons))
    if State.SUCCEEDED in wanted.states:
        return None, []
    return {PLACES[s] for s in wanted.states if s in PLACES}, _reasons(wanted.states)


def _named_way(wanted: Filter) -> str | None:
    """Return the index of what the filter names, if it names something that has one."""
    for key in ("sweep", "experiment"):
        names = wanted.values(key)
        if names and not any(map(_is_glob, names)):
            return key
    if any(_exact_tags(wanted)):
        return "tag"
    places = {"worker": "lease", "waits": "held"}
    way = next((place for key, place in places.items() if wanted.values(key)), None)
    return way or ("archived" if wanted.archived else None)


def _exact_tags(wanted: Filter) -> Iterator[list[str]]:
    return (list(tags) for tags in wanted.each("tag") if not any(map(_is_glob, tags)))


def _reasons(states: Collection[State]) -> list[str]:
    """Return the possible reasons of jobs in these final states, except `succeeded`."""
    reasons = [*CANCELS] if State.CANCELLED in states else []
    if {State.FAILED, State.DEAD} & {*states}:
        reasons += [r for r in Reason if r not in {Reason.SUCCEEDED, *CANCELS}]
    return [reason.value for reason in reasons]


def _conditions(database: Database, wanted: Filter) -> dict[str, Any]:
    """Return the statement's parameters that a job must match; None means anything."""
    labels = [
        [[n, _like(v) if s else "%"] for n, s, v in map(_parts, ls)] for ls in wanted.each("label")
    ]
    return {
        "states": [s.value for s in wanted.states] if wanted.values("state") else None,
        "reasons": list(wanted.values("reason")) or None,
        "waits": list(wanted.values("waits")) or None,
        "kinds": list(wanted.values("kind")) or None,
        "owners": _likes(wanted, "owner"),
        "teams": _likes(wanted, "team"),
        "queues": _likes(wanted, "queue"),
        "names": _likes(wanted, "name"),
        "workers": _likes(wanted, "worker"),
        "in_sweeps": _likes(wanted, "sweep"),
        "in_experiments": _likes(wanted, "experiment"),
        "words": [f"%{_like(word)}%" for word in wanted.words] or None,
        "labels": Jsonb(labels),
        "figures": Jsonb(
            [
                [{"source": key, **_bound(text)} for text in texts]
                for key, texts in wanted.repeated
                if key in FIGURES
            ]
        ),
        "tags": Jsonb([list(map(_like, tags)) for tags in wanted.each("tag")]),
        "archived": wanted.archived,
        "since": _since(database, wanted),
    }


def _since(database: Database, wanted: Filter) -> datetime | None:
    """Return when the oldest job may have been submitted, by the database's clock."""
    if not (values := wanted.values("since")):
        return None
    clock = database.row("clock", again=True)
    assert clock is not None  # noqa: S101 - the statement selects one row always
    return moment(values[0], clock["now"])


def _bound(text: str) -> dict[str, Any]:
    """Return what the statement compares a figure with: a pattern, a number, or both."""
    bound = Bound.of(text) or Bound(text)
    stem, _, extreme = bound.name.rpartition(".")
    if extreme == "best":
        # It is large.
        from forge_schema.model.results import lower_is_better  # noqa: PLC0415

        extreme = "min" if lower_is_better(stem) else "max"
    name = {"name": bound.name, "stem": stem, "extreme": extreme}
    if not bound.sign:
        return {**name, "pattern": "%"}
    pattern = _like(bound.value) if bound.sign == "=" else None
    return {**name, "sign": bound.sign, "number": bound.number, "pattern": pattern}


def _parts(label: str) -> tuple[str, str, str]:
    return label.partition("=")


def _likes(wanted: Filter, key: str) -> list[str] | None:
    return [_like(value) for value in wanted.values(key)] or None


def _is_glob(text: str) -> bool:
    return "*" in text or "?" in text


def _like(glob: str) -> str:
    """Convert a glob to a LIKE pattern."""
    escaped = glob.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%").replace("?", "_")


class JobAmbiguous(ForgeError):
    """A name could mean several jobs."""


def job_named(database: Database, handle: str, *, owner: str, others: list[str] | None) -> int:
    """Return the id of the job that a handle names.

    Args:
        database: an open database.
        handle: an id; `@last` or `@1` for the owner's newest job, `@2` for the one before it; a
            name; or the beginning of a name.
        owner: whose jobs come first.
        others: the other owners whose jobs may be named too; None means all.

    Raises:
        JobUnknown: no job has this id or name.
        JobAmbiguous: several have the name, or begin with it.
    """
    handle = handle.strip()
    if ID.fullmatch(handle):
        return possible_job(int(handle))
    newest = NTH_NEWEST.fullmatch(handle)
    nth = None if newest is None else int(newest[1].replace("last", "1"))
    params = {"name": handle, "nth": nth, "owner": owner, "others": others}
    rows = database.rows("named_jobs", again=True, look=LOOK_NAMED, shown=SHOWN, **params)
    if not handle or not rows:
        near = _near(database, params) if handle and nth is None else ""
        raise _unknown(handle, owner, nth, near)
    if rows[0]["found"] > 1:
        raise _ambiguous(handle, rows)
    job_id: int = rows[0]["job_id"]
    return job_id


def _near(database: Database, params: Mapping[str, Any]) -> str:
    """Ask for the name that may be meant, of those of the owner's newest jobs."""
    every = {**params, "name": ""}  # each name begins with it
    rows = database.rows("named_jobs", again=True, look=LOOK_NAMED, shown=COMPARED, **every)
    return nearest(params["name"], {row["name"] for row in rows})


def _unknown(handle: str, owner: str, nth: int | None, near: str) -> JobUnknown:
    hint = f"{near}`forge ps` lists the jobs; names are searched among the newest of them"
    if nth is None:
        return JobUnknown(f"there is no job named {handle!r}", hint=hint)
    return JobUnknown(f"{owner} has submitted no job that {handle} could mean", hint=hint)


def _ambiguous(handle: str, rows: list[Row]) -> JobAmbiguous:
    alike = all(row["name"] == handle for row in rows)
    lines = [str(row["job_id"]) if alike else f"{row['job_id']} {row['name']!r}" for row in rows]
    lines += [""] * (rows[0]["found"] - len(rows))
    newest = rows[0]["job_id"]
    return JobAmbiguous(
        f"{handle!r} could be job {names_text(lines, SHOWN, last='or')}",
        hint=f"write the id: the newest of them is {newest}; `@last` is your newest job of all",
    )
