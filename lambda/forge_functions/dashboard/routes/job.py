"""One job: its status, attempts, explanation and output."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Query, Request, Response
from forge_schema.database.pool import Row
from forge_schema.job_filter import Filter
from forge_schema.model.explanation import Explanation
from forge_schema.model.fields import NOT_FINITE, Text
from forge_schema.model.job import JobDetail
from forge_schema.model.reading import link_of
from forge_schema.model.results import JobTest
from forge_schema.model.states import PROGRESS, Verdict
from forge_schema.model.stored import Checkpoint
from forge_schema.read.audit import names_of
from forge_schema.read.jobs import EVENTS_SHOWN, RUNS_SHOWN, Jobs, JobStory

from forge_functions.dashboard.explained import in_words
from forge_functions.dashboard.formats import COUNTERS, untold
from forge_functions.dashboard.page import after, page
from forge_functions.dashboard.routes.events import Told, told
from forge_functions.dashboard.routes.jobs import address, telling
from forge_functions.dashboard.session import (
    PageJob,
    RulesByPage,
    SeesPages,
    SubmitsByPage,
    Visitor,
)
from forge_functions.dashboard.timeline import KINDS, WIDTH, TimelineRow, timeline
from forge_functions.dashboard.words import t
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

router = LazyRouter(prefix="/jobs/{job_id}")
FILES = 50
WAITING = ("queued", "held")
# Number of workers in an explanation on the page.
WORKERS = 5
FAILING = (Verdict.FAILED, Verdict.ERROR)
# Tests of a page; `forge tests` lists all.
TESTS = 200
# The tasks of a job in its result, of which `forge runs` lists the rest.
TASKS, MOST_TASKS, LONG_S = "forge_tasks", 200, 1e9
# What ran for less may have ended before it was measured.
SAMPLED_S = 15


@dataclass(frozen=True)
class Task:
    """One of the tasks of a job: how it ended, and what it found or raised, in a line."""

    state: str
    parameters: dict[str, Any]
    seconds: float | None
    said: str
    values: dict[str, Any]

    @classmethod
    def of(cls, entry: Mapping[str, Any], ended: str) -> "Task":
        """Return a task as its job, which `ended` so, told of it: nothing there is believed."""
        result = _mapping(entry.get("result"))
        raised = _mapping(result.get("raised"))
        said = [text for key in ("type", "message") if (text := raised.get(key))]
        seconds, state = entry.get("seconds"), entry.get("state")
        return cls(
            state=state if state in {"succeeded", "failed"} else ended,
            parameters=_mapping(entry.get("parameters")),
            seconds=seconds if isinstance(seconds, int | float) and 0 <= seconds < LONG_S else None,
            said=": ".join(map(str, said)) or str(entry.get("detail") or ""),
            values={} if raised else result,
        )


@dataclass
class JobPageData:
    """The job's data for the template, read lazily, since each part needs only some of it."""

    shared: Services
    who: Visitor
    job: JobDetail
    files: str

    @cached_property
    def story(self) -> JobStory:
        """The reader of the job's data."""
        return JobStory(self.shared.database, self.job.job_id)

    @cached_property
    def runs(self) -> list[Row]:
        """The attempts."""
        return self.story.runs()

    @cached_property
    def asked(self) -> dict[str, Any]:
        """The job's request."""
        return self.story.asked()

    @property
    def ran_s(self) -> float:
        """How long its program has run, in all attempts."""
        return self.story.ran_s(self.runs)

    @property
    def last_ran_s(self) -> float:
        """How long it has run in its last attempt, as lists tell it."""
        return self.story.ran_s(run for run in self.runs if run["attempt"] == self.job.attempt)

    @cached_property
    def details(self) -> set[tuple[int, int]]:
        """The attempts and ranks whose end says what neither the job nor one before them says."""
        known, new = {untold(self.job.detail or ""), ""}, set[tuple[int, int]]()
        for run in self.runs:
            text = untold(run["detail"] or "")
            if run["reason"] != "succeeded" and text not in known:
                new.add((run["attempt"], run["rank"]))
            known.add(text)
        return new

    @property
    def left_s(self) -> float | None:
        """How long it needs at its pace so far, if it reports its progress."""
        done = self.job.progress if self.job.state == "running" else None
        return self.ran_s * (1 - done) / done if done else None

    @cached_property
    def metrics(self) -> list[Row]:
        """Its last metrics."""
        return Jobs(self.shared.database).last_metrics(self.job.job_id)

    @property
    def links(self) -> dict[str, str]:
        """The addresses of its trackers' pages, by the names of their metrics."""
        return {row["key"]: url for row in self.metrics if (url := link_of(row["value"]))}

    @property
    def metric(self) -> Row | None:
        """Its last value of the metric that says most: a loss, or else the first by name."""
        metrics = [row for row in self.metrics if row["key"] not in COUNTERS]
        rows = [
            row
            for row in metrics
            if isinstance(row["value"], float | int) or row["value"] in NOT_FINITE
        ]
        return min(rows, key=lambda row: telling(row["key"]), default=None)

    @cached_property
    def result(self) -> dict[str, Any] | None:
        """What it found, of rank 0; None if it reported nothing."""
        if not self.job.state.terminal:
            return None
        return self.shared.service(self.who).findings.result(self.job.job_id).values

    @property
    def tasks(self) -> list[Task]:
        """The tasks of a job that made many; what else is in its result is then not shown."""
        found = (self.result or {}).get(TASKS)
        entries = found if isinstance(found, list) else []
        return [Task.of(_mapping(entry), self.job.state) for entry in entries[:MOST_TASKS]]

    @property
    def traceback(self) -> str | None:
        """What the function of a failed job raised, if that is all of its result."""
        result = self.result if self.job.state == "failed" and self.job.detail else None
        match result:
            case {"raised": {"traceback": str(text)}, **more} if not more:
                return text
        return None

    @cached_property
    def tests(self) -> list[JobTest]:
        """The results of its first tests, those that failed first."""
        if not self.job.state.terminal:
            return []
        found = self.shared.service(self.who).findings.tests(self.job.job_id)
        return sorted(found, key=lambda test: test.verdict not in FAILING)

    @cached_property
    def lines(self) -> list[TimelineRow]:
        """The attempts as bars."""
        return timeline(self.job, self.runs, self.who.now)

    @cached_property
    def spent(self) -> Row:
        """Its cost so far, and the GPU time of the ended attempts."""
        return self.story.spent()

    @property
    def sweep(self) -> str | None:
        """The address of the list of the same sweep's jobs, if it is one of a sweep."""
        sweep = self.asked["sweep"]
        return address(Filter().having("sweep", sweep)) if sweep else None

    @property
    def tags(self) -> dict[str, str]:
        """The addresses of the lists of jobs with the same tags, by tag."""
        return {tag: address(Filter(repeated=(("tag", (tag,)),))) for tag in self.job.tags}

    @property
    def experiment(self) -> str | None:
        """The address of the table of the same experiment's runs, if it belongs to one."""
        name = self.job.experiment
        query = urlencode({"q": str(Filter().having("experiment", name))}) if name else ""
        return f"/runs?{query}" if name else None

    @cached_property
    def artifacts(self) -> list[Row]:
        """A page of the job's output files, and one more."""
        return self.story.artifacts(after=self.files, count=FILES + 1)

    @property
    def more_files(self) -> str | None:
        """The path after which the next page begins, if there is one."""
        return self.artifacts[FILES - 1]["path"] if len(self.artifacts) > FILES else None

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The newest checkpoints."""
        return self.shared.service(self.who).checkpoints(self.job.job_id)[:FILES]

    def told(self, acts: list[Row]) -> list[Told]:
        """Return its events in words, with the names of those who acted."""
        return told(acts, names_of(self.shared.database, acts))

    @property
    def error(self) -> tuple[str, str]:
        """What was wrong in one line, and the output before it, which is not to say it again."""
        first, _, rest = (self.job.detail or "").partition("\n")
        rest = self.traceback or rest
        output = rest.rstrip().removesuffix(untold(first)).rstrip()
        return first, output

    @property
    def expected(self) -> int:
        """How many curves its page is likely to draw."""
        measured = 2 if self.ran_s > SAMPLED_S else 0
        return measured + len({row["key"] for row in self.metrics} - PROGRESS - {*self.links})

    @property
    def why(self) -> Explanation:
        """Why the job waits, or how it ended."""
        return in_words(self.shared.service(self.who).explain(self.job.job_id, workers=WORKERS))


@router.get("")
def job(
    request: Request,
    who: SeesPages,
    job: PageJob,
    shared: Shared,
    files: Annotated[Text, Query(max_length=1024)] = "",
) -> Response:
    """Show a job."""
    return page(
        request,
        who,
        "job.html",
        job=job,
        data=JobPageData(shared, who, job, files),
        command=shlex.join(job.spec.get("command", [])),
        over=job.state.terminal,
        waiting=job.state in WAITING,
        most_runs=RUNS_SHOWN,
        most_events=EVENTS_SHOWN,
        most_tests=TESTS,
        width=WIDTH,
        kinds=KINDS,
    )


@router.post("/cancel")
def cancel(request: Request, who: SubmitsByPage, job: PageJob, shared: Shared) -> Response:
    """Cancel the job. One that has ended stays as it is."""
    state = shared.service(who).cancel(job.job_id)
    messages = {
        "cancelled": t("The job is cancelled."),
        "running": t("Its worker was asked to stop the job."),
    }
    return after(request, _path(job.job_id), messages.get(state, t("The job had already ended.")))


@router.post("/retry")
def retry(request: Request, who: SubmitsByPage, job: PageJob, shared: Shared) -> Response:
    """Queue a failed job again."""
    shared.service(who).retry(job.job_id)
    return after(request, _path(job.job_id), t("The job is queued again."))


@router.post("/approve")
def approve(request: Request, who: RulesByPage, job: PageJob, shared: Shared) -> Response:
    """Approve a job that may spend more than its owner may without asking."""
    shared.service(who).admin.approve([job.job_id])
    return after(request, _path(job.job_id), t("The job is approved."))


@router.post("/preempt")
def preempt(request: Request, who: SubmitsByPage, job: PageJob, shared: Shared) -> Response:
    """Ask for a running job back, as a spot notice would."""
    asked = shared.service(who).preempt(job.job_id)
    message = (
        t("Its worker was asked to give the job back.") if asked else t("The job is not running.")
    )
    return after(request, _path(job.job_id), message)


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _path(job_id: int) -> str:
    return f"/jobs/{job_id}"
