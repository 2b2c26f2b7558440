"""The list of jobs, with a filter in the address."""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from http import HTTPStatus
from typing import Annotated, Literal, get_args
from urllib.parse import urlencode

from fastapi import Query, Request, Response
from fastapi.responses import RedirectResponse
from forge_schema.database.pool import Row
from forge_schema.job_filter import KEYS, Filter, FilterInvalid, parse
from forge_schema.model.fields import NotFinite, Text
from forge_schema.model.reading import LARGEST
from forge_schema.model.states import State, StateWord
from forge_schema.read import job_pages
from forge_schema.read.job_pages import JobPage, StateCounts
from forge_schema.read.jobs import Jobs

from forge_functions.dashboard.formats import COUNTERS
from forge_functions.dashboard.page import page
from forge_functions.dashboard.session import SeesPages, Visitor
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

router = LazyRouter()
# What can be done to many jobs.
Act = Literal["cancel", "retry", "approve", "tag", "archive", "restore"]
ACTS: tuple[Act, ...] = get_args(Act)
SPANS = ("1h", "1d", "7d")
# Of these the list says more: what they measured, or that no worker can run them.
TOLD = (State.READY, State.RUNNING, State.SUCCEEDED)
COUNTED = (
    *("cancelled", "running", "retried", "unfinished", "over", "approved", "unasked", "absent"),
    *("changed", "unended", "full"),
)
_NUMBER = re.compile("[0-9]{1,18}")
Before = Annotated[int | None, Query(ge=1, le=LARGEST)]


@dataclass
class JobList:
    """The list's data for the template. The page is read when first needed."""

    shared: Services
    who: Visitor
    text: str
    before: int | None

    @cached_property
    def fault(self) -> FilterInvalid | None:
        """The fault of the filter, if any."""
        try:
            parse(self.text)
        except FilterInvalid as error:
            return error
        return None

    @cached_property
    def wanted(self) -> Filter:
        """The filter; if it is invalid, one that matches everything."""
        return Filter() if self.fault else parse(self.text)

    @cached_property
    def page(self) -> JobPage:
        """The jobs."""
        wanted = self.wanted.seen_by(self.who.owner)
        return job_pages.page(
            self.shared.database, wanted, scope=self.who.scope, before=self.before
        )

    @property
    def jobs(self) -> list[Row]:
        """The rows of the page; none if the filter is invalid."""
        return [] if self.fault else self.page.jobs

    @cached_property
    def counts(self) -> StateCounts | None:
        """How many jobs the filter finds by state, without its own; None if that is not known."""
        wanted = self.wanted.seen_by(self.who.owner)
        return job_pages.counts(self.shared.database, wanted, scope=self.who.scope)

    def count(self, state: str) -> str:
        """Return how many jobs have a state, as text; of ended ones there may be more."""
        jobs = self.counts.jobs.get(state, 0) if self.counts else 0
        more = self.counts and self.counts.more and StateWord(state).terminal
        return f"{jobs:,}+" if jobs and more else f"{jobs:,}" if jobs else ""

    @property
    def same(self) -> dict[str, str]:
        """What all of several jobs have in common, by its key; not worth a column."""
        keys = ("queue", "owner") if self.who.several else ("queue",)
        values = {key: {str(job[key]) for job in self.jobs} for key in keys}
        return {
            key: next(iter(some))
            for key, some in values.items()
            if len(self.jobs) > 1 and len(some) == 1
        }

    @cached_property
    def _known(self) -> list[Row]:
        told = [job["job_id"] for job in self.jobs if job["state"] in TOLD]
        return Jobs(self.shared.database).listed(told) if told else []

    @cached_property
    def unservable(self) -> set[int]:
        """The ids of those that no online worker could run, even when idle."""
        return {row["job_id"] for row in self._known if row["unservable"]}

    @cached_property
    def newest(self) -> dict[int, tuple[str, float | NotFinite]]:
        """The last value of the metric that says most, of those that run or succeeded."""
        return {
            row["job_id"]: min(row["metrics"].items(), key=lambda pair: telling(pair[0]))
            for row in self._known
            if row["metrics"]
        }

    def has(self, key: str, value: str) -> bool:
        """Tell whether the filter has a value."""
        return value in self.wanted.values(key)

    def toggle(self, key: str, value: str) -> str:
        """Return the list's address with a value added to its filter or removed from it."""
        return address(self.wanted.toggled(key, value))

    def only(self, key: str, value: str) -> str:
        """Return the list's address with only this value for a key; without it if it is set."""
        chosen = () if self.has(key, value) else (value,)
        return address(self.wanted.having(key, *chosen))

    def tagged(self, tag: str) -> str:
        """Return the list's address with one more tag in its filter."""
        terms = dict.fromkeys((*self.wanted.repeated, ("tag", (tag,))))
        return address(replace(self.wanted, repeated=tuple(terms)))


@router.get("/find")
def find(_who: SeesPages, q: Text = "") -> Response:
    """Lead to the job with a number, or to the list of jobs that match a filter."""
    text = q.strip()
    to = f"/jobs/{int(text)}" if _NUMBER.fullmatch(text) else f"/jobs?{urlencode({'q': text})}"
    return RedirectResponse(to, HTTPStatus.SEE_OTHER)


@router.get("/jobs")
def jobs(
    request: Request, who: SeesPages, shared: Shared, q: Text = "", before: Before = None
) -> Response:
    """Show the newest jobs that match a filter."""
    listed = JobList(shared, who, q.strip(), before)
    return page(
        request,
        who,
        "jobs.html",
        listed=listed,
        states=[word.value for word in StateWord],
        spans=SPANS,
        keys=KEYS,
        did=done(request),
    )


def telling(metric: str) -> tuple[bool, bool, str]:
    """Order metrics by how much they say: a loss first, others by name, at last what counts."""
    return metric in COUNTERS, "loss" not in metric, metric


def address(wanted: Filter) -> str:
    """Return the address of the list with a filter."""
    return f"/jobs?{urlencode({'q': str(wanted)})}" if wanted else "/jobs"


def done(request: Request) -> dict[str, int] | None:
    """Return the summary of an action on many jobs, from the address it redirected to."""
    params = request.query_params
    if params.get("did") not in ACTS:
        return None
    return {name: _count(params.get(name, "")) for name in COUNTED}


def _count(text: str) -> int:
    return int(text) if re.fullmatch("[0-9]{1,5}", text) else 0
