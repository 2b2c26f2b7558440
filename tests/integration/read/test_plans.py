"""No query scans the history: 300,000 attempts, judged by the work actually done."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import TYPE_CHECKING, Any, get_args
from uuid import UUID

import pytest
from forge_schema.database.pool import Database, run
from forge_schema.database.statements import statements
from forge_schema.explain import explain
from forge_schema.job_filter import Filter, parse
from forge_schema.model.job import JobUnknown
from forge_schema.model.results import GroupedBy
from forge_schema.model.states import State, WorkerStatus
from forge_schema.queue.claim import next_inputs
from forge_schema.queue.limits import Limits
from forge_schema.queue.queue import Queue
from forge_schema.queue.registry import Registry
from forge_schema.queue.templates import Templates
from forge_schema.read import audit, job_pages, overview
from forge_schema.read.job_pages import job_named
from forge_schema.read.jobs import JobStory, recent_bundles
from forge_schema.read.overview import OverviewReader, QueueCounts, growth, remember_store
from forge_schema.read.report_definitions import REPORTS
from forge_schema.read.reports import Reports
from forge_schema.read.runs import Benchmarks, Sorted, experiments, groups, runs
from forge_schema.read.series import SPANS, SeriesReader, use_over_time
from forge_schema.schedules import listed
from support.database.plans import HISTORY, assert_bounded, watched
from support.past.plan_world import World, world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.database.plans import Plan
    from support.past.history import Past

SCOPES = (None, ["ann"], ["ann", "ben", "quiet"], ["nobody"])
STATES: tuple[list[State], ...] = ([], *([state] for state in State), [State.FAILED, State.DEAD])
FILTERS = (
    "owner:ann",
    "team:nlp",
    "owner:quiet state:failed",
    "state:failed",
    "state:queued",
    "state:running queue:research",
    "state:held owner:ann",
    "waits:approval",
    "reason:image_missing owner:tara",
    "queue:nightly",
    "kind:benchmark",
    "sweep:grid-0",
    "sweep:grid*",
    "experiment:vision-3",
    "experiment:vision*",
    "worker:h100*",
    "since:1h",
    "since:7d state:failed",
    "label:zone=moon",
    "tag:paper",
    "tag:paper state:queued",
    "tag:nowhere",
    "archived:yes owner:quiet",
    "nothing-is-called-so",
    "state:cancelled finetune",
    "metric:loss.best<0.2 result:acc",
)


@pytest.fixture(scope="module")
def there(past: tuple[str, Past]) -> Iterator[World]:
    url, made = past
    with Database(url, size=2, statement_s=120) as database:
        yield world(database, made)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Plan]]:
    with watched(monkeypatch) as plans:
        yield plans


def test_the_past_is_as_large_as_it_says(there: World) -> None:
    with there.database.reporting() as connection:
        query = "SELECT count(*) AS attempts, max(attempt) AS most FROM attempt"
        (row,) = connection.execute(query).fetchall()
        # Foreign keys were not checked while it was made.
        faults = connection.execute(
            "SELECT FROM job LEFT JOIN lane ON lane.id = job.lane_id WHERE lane.id IS NULL LIMIT 1"
        ).fetchall()
    assert row["attempts"] >= 0.99 * there.past.attempts
    assert faults == []


def test_a_page_of_jobs_is_found_by_an_index(there: World, seen: list[Plan]) -> None:
    for scope, states, before in product(SCOPES, STATES, (None, there.middle)):
        there.jobs.jobs(Filter().having("state", *states), scope=scope, before=before)
    for text in FILTERS:
        job_pages.page(there.database, parse(text))
        job_pages.page(there.database, parse(text), scope=["ann"], before=there.middle)
    # A page's worth from each of 200 lanes is read before the newest jobs are known.
    assert_bounded(seen, 60_000)
    assert {plan.name for plan in seen} >= {"page_jobs", "listed_jobs"}


def named(there: World, handle: str) -> int | None:
    with suppress(JobUnknown):
        return job_named(there.database, handle, owner="ann", others=None)
    return None


# The lease of a job with inputs.
HELD = {"job_id": 1, "token": 1, "nonce": UUID(int=1)}


def of_input(job: int) -> dict[str, Any]:
    """Return what the statements about a source of an input ask for."""
    place = {"path": "model", "after": "", "count": 1000, "attempt": None, "number": None}
    return {"source_id": job, "owner": "ann", "key": "none", **place}


ABOUT_A_JOB: dict[str, Callable[[World, int], object]] = {
    "job": lambda w, job: w.jobs.job(job),
    "attempts": lambda w, job: w.jobs.attempts(job),
    "artifacts": lambda w, job: w.jobs.artifacts(job),
    "checkpoints": lambda w, job: w.jobs.checkpoints(job),
    "events": lambda w, job: [w.jobs.events(job), JobStory(w.database, job).events()],
    "log_chunks": lambda w, job: w.jobs.log_chunks(job, after=(0, 0, -1)),
    "log_chunks_before": lambda w, job: w.jobs.log_chunks_before(job, before=(2**62, 0, 0)),
    "metrics": lambda w, job: w.jobs.metrics(job),
    "metrics_last": lambda w, job: w.jobs.last_metrics(job),
    "result": lambda w, job: w.jobs.result(job),
    "tests": lambda w, job: w.jobs.tests(job),
    "job_runs": lambda w, job: JobStory(w.database, job).runs(),
    "job_spent": lambda w, job: JobStory(w.database, job).spent(),
    "page_artifacts": lambda w, job: JobStory(w.database, job).artifacts(count=100),
    "next_inputs": lambda w, job: next_inputs(w.database, w.worker_id, job),
    "checkpoint_parts": lambda w, job: JobStory(w.database, job).checkpoint(1, 2),
    "job_asked": lambda w, job: JobStory(w.database, job).asked(),
    "series_attempts": lambda w, job: SeriesReader(w.database).of(job),
    "explain_job": lambda w, job: explain(w.database, job),
    "input_source": lambda w, job: w.database.rows("input_source", again=True, **of_input(job)),
    "input_artifacts": lambda w, job: w.database.rows(
        "input_artifacts", again=True, **of_input(job), **HELD
    ),
    "input_checkpoint": lambda w, job: w.database.rows(
        "input_checkpoint", again=True, **of_input(job), **HELD
    ),
    "audit": lambda w, job: w.audit.events(job_id=job, since=timedelta(days=400)),
    "page_job_trail": lambda w, job: audit.page(w.database, audit.AuditFilter(job_id=job)),
}


def over_time(there: World) -> None:
    """Read each span of all jobs, of an owner's, of a queue's and of a worker's."""
    for span in SPANS:
        now = datetime.now(UTC)
        use_over_time(there.database, span, now=now)
        use_over_time(there.database, span, now=now, scope=["ann"])
        use_over_time(there.database, span, now=now, queue="nightly")
        use_over_time(there.database, span, now=now, worker_id=there.worker_id)


by_loss = Sorted(sort="loss.best", curve=("loss",))
ABOUT_ALL: dict[str, Callable[[World], object]] = {
    "next_job": lambda w: w.database.row(
        "next_job", again=True, lanes=[*range(1, 51)], past=[], worker_id=w.worker_id
    ),
    "statuses": lambda w: w.jobs.statuses(w.ids, scope=["ann"]),
    "named_jobs": lambda w: [named(w, handle) for handle in ("@last", "@9", "none")],
    "audit": lambda w: [
        w.audit.events(count=100),
        w.audit.events(since=timedelta(days=150), count=100),
        w.audit.events(worker_id=w.worker_id, count=100),
        w.audit.events(actor="user:root", count=100),
        w.audit.events(action="retried", count=100),
    ],
    "page_trail": lambda w: [
        audit.page(w.database, audit.AuditFilter()),
        audit.page(
            w.database, audit.AuditFilter(actor="nobody", before=audit.AuditPlace(10**6, 10**6))
        ),
        audit.page(w.database, audit.AuditFilter(action="retried", worker_id=w.worker_id)),
    ],
    "trail_names": lambda w: audit.names_of(
        w.database, audit.page(w.database, audit.AuditFilter(), count=100).acts
    ),
    "count_states": lambda w: [
        job_pages.counts(w.database, parse(text), scope=s)
        for s in SCOPES
        for text in ("", "since:7d", "owner:ann queue:research", "team:nlp")
    ],
    "page_queues": lambda w: [overview.queues(w.database, scope=s) for s in SCOPES],
    "use_over_time": over_time,
    "page_demand": lambda w: [overview.demand(w.database, scope=s) for s in SCOPES],
    "gauge_ended": lambda w: twice(QueueCounts(w.database, timedelta(seconds=120)).count_ended),
    "gauge_lanes": lambda w: QueueCounts(w.database, timedelta(seconds=120)).lanes(),
    "gauge_fleet": lambda w: QueueCounts(w.database, timedelta(seconds=120)).fleet(),
    "gauge_now": lambda w: QueueCounts(w.database, timedelta(seconds=120)).now(),
    "approvals": lambda w: w.database.rows(
        "approvals", again=True, owner=None, sweep=None, after=0, count=1_000
    ),
    "damaged_at": lambda w: w.database.row("damaged_at", again=True, sha256="ab" * 32),
    "count_spending": lambda w: budgeted(w.database),
    "suspect": lambda w: judged(w.database),
    "queues": lambda w: [Limits(w.database, actor="user:ann").queues(s) for s in SCOPES],
    "queue_id": lambda w: Registry(w.database, actor="user:ann").queue_id(),
    "known_store": lambda w: remember_store(w.database, "file:///objects", lambda _: 1),
    "workers": lambda w: Registry(w.database, actor="user:ann").workers(),
    "templates": lambda w: Templates(w.database, owner="ann", actor="user:ann").listed(),
    "schedules": lambda w: [listed(w.database, scope) for scope in SCOPES],
    "notice": lambda w: noticing(w.database),
    "sweep_states": lambda w: Benchmarks(w.database, owner="ann", actor="a").states("grid-0"),
    "sweep_unfinished": lambda w: w.database.rows(
        "sweep_unfinished", again=True, owner="ann", sweep="grid-0"
    ),
    "sweep_points": lambda w: Benchmarks(w.database, owner="ann", actor="a").points("grid-0"),
    # The runs of an experiment, sorted by what they measured.
    "runs": lambda w: [
        runs(w.database, parse("experiment:vision-3"), scope=scope, how=by_loss) for scope in SCOPES
    ],
    "run_groups": lambda w: [
        groups(w.database, parse("experiment:vision-3"), by, scope=scope)
        for by, scope in product(get_args(GroupedBy), SCOPES)
    ],
    "experiments": lambda w: [experiments(w.database, scope) for scope in SCOPES],
    "recent_bundles": lambda w: recent_bundles(w.database, "ann"),
    "overview_ended": lambda w: [
        OverviewReader(w.database).now(scope=scope, jobs=200, workers=200) for scope in SCOPES
    ],
    "page_workers": lambda w: w.fleet.page(words=["h100"], statuses=[WorkerStatus.BUSY]),
    "worker_named": lambda w: Registry(w.database, actor="user:ann").named("gone-1"),
    "former_worker": lambda w: w.fleet.former(w.former_id),
    "worker_page": lambda w: w.fleet.worker(w.worker_id),
    "worker_jobs": lambda w: w.fleet.jobs(w.worker_id),
    "worker_attempts": lambda w: [w.fleet.attempts(w.worker_id, scope=s) for s in SCOPES],
    "decisive": lambda w: Queue(w.database, actor="sweeper").runs.whole(),
    "worker_events": lambda w: w.fleet.events(w.worker_id),
}


def noticing(database: Database) -> None:
    """Look for the events of a day."""
    since = {"since": datetime.now(UTC) - timedelta(days=1), "until": datetime.now(UTC)}
    with database.reporting() as connection:
        run(connection, "notice", since)


def budgeted(database: Database) -> None:
    """Count what an owner used, first in the whole month and then in the last minutes."""
    with database.transaction() as connection:
        connection.execute("UPDATE owner_quota SET cost_per_month = 1e9 WHERE owner = 'ann'")
    twice(lambda: database.rows("count_spending", again=True, owner=None, actor="sweeper"))


def judged(database: Database) -> None:
    """Judge the workers, and look at who is to blame, which the function hides."""
    database.rows("suspect", again=True, actor="sweeper")
    with database.reporting() as connection:
        connection.execute("SELECT * FROM forge_blamed()").fetchall()


def twice(act: Callable[[], object]) -> None:
    """Call it, and call it again."""
    act()
    act()


# A month's use is counted once from its beginning. A day of events is told by the day; a job's
# story, the workers and a shape are small.
MOST = {
    "runs": 60_000,
    "run_groups": 60_000,
    "audit": 60_000,
    "count_spending": 60_000,
    "notice": 60_000,
    # Four weeks are a sixth of the history.
    "use_over_time": 100_000,
    "explain_job": 40_000,
    "sweep_points": 20_000,
    "series_attempts": 100_000,
    # The newest of each lane, before the newest of all are known.
    "count_states": 40_000,
}


@pytest.mark.parametrize("name", ABOUT_A_JOB)
def test_what_is_told_of_a_job_is_found_by_an_index(
    there: World, seen: list[Plan], name: str
) -> None:
    for job in there.ids:
        ABOUT_A_JOB[name](there, job)
    assert name in {plan.name for plan in seen}
    assert_bounded(seen, MOST.get(name, 10_000))


@pytest.mark.parametrize("name", ABOUT_ALL)
def test_what_is_told_of_all_is_found_by_an_index(
    there: World, seen: list[Plan], name: str
) -> None:
    ABOUT_ALL[name](there)
    assert name in {plan.name for plan in seen}
    assert_bounded(seen, MOST.get(name, 10_000))


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_of_a_day_does_not_read_half_a_year(
    there: World, seen: list[Plan], name: str
) -> None:
    report, reports = REPORTS[name], Reports(there.database)
    since = "1d" if report.time else None
    reports.rows(name, since=since)
    if report.owned:
        reports.rows(name, since=since, scope=["quiet"])
    if report.keys:
        reports.rows(name, since=since, by=report.keys[:1])
    read = {table: rows for plan in seen for table, rows in plan.read().items()}
    # A day is 1/180 of the history. The planner may well read a whole month for it.
    most = max(there.past.attempts // 4, 20_000)
    assert {table: rows for table, rows in read.items() if rows > most} == {}, "\n".join(
        str(plan) for plan in seen if any(rows > most for rows in plan.read().values())
    )


def test_a_prediction_of_the_disk_reads_two_weeks_of_half_a_year(
    there: World, seen: list[Plan]
) -> None:
    assert growth(there.database).tables_per_day
    read = {table: rows for plan in seen for table, rows in plan.read().items()}
    most = max(there.past.attempts // 2, 20_000)
    assert 0 < max(read.values()) <= most, "\n".join(map(str, seen))


# They change something, and each is about what its caller names by key: a job, a lease, a worker.
# Where such a one is slow, a claim is; see test_claim_stays_flat.py.
VERBS = frozenset(
    name
    for name, path in statements().items()
    if any(
        word in path.read_text(encoding="utf-8")
        for word in ("INSERT INTO", "UPDATE ", "DELETE FROM")
    )
)
# They read none of the history, or one row of it by its key.
SMALL = frozenset({
    "approve", "artifact", "attempt_marks", "explain_begun", "claimed_before", "clock", "delete",
    "displace", "draft",
    "direct_workers", "drop_partitions", "due", "raise_numbers", "due_schedules", "ended", "inputs",
    "enrolled_worker", "health", "kept_by_owner", "lock_run", "lock_schedule", "members_among",
    "own_job", "own_lease", "key", "keys",
    "lanes_with_room", "lateness", "latest_checkpoint", "lock_lanes", "lock_owners",
    "lock_slots",
    "call_in", "deliveries", "teams",
    "newest_checkpoints",
    "form", "formed", "grow", "keep_members",
    "make_partitions", "match", "mend_turns", "missing_uploads",
    "next_worker_id", "new_deliveries", "noticed",
    "notifications", "notifier", "overrun", "own_fences", "person_view", "quotas",
    "release_stragglers",
    "team_members",
    "remove_jobs", "remove_lanes", "restorable",
    "serves", "source", "submitted_before", "template", "tick_due", "tombstones",
    "uneven_limits", "unknown_job", "wake_again", "worker_by_token", "workers_before",
})  # fmt: skip
# Statements that the calls above also run.
WITH = frozenset({
    "explain_attempts", "explain_leased", "explain_lanes", "explain_lease", "explain_members",
    "explain_displaced",
    "explain_recent", "explain_running", "explain_serves", "explain_spent", "explain_workers",
    "overview_fleet", "overview_interrupted", "overview_jobs", "overview_oldest",
    "listed_jobs", "overview_places", "overview_sweeper", "overview_workers", "page_jobs",
    "series_metrics", "series_samples", "run_curves",
})  # fmt: skip


# It reads all that is stored, to copy it.
WHOLE = {"stored_keys"}


def test_every_statement_that_reads_is_looked_at() -> None:
    looked_at = {*ABOUT_A_JOB, *ABOUT_ALL, *WITH, *SMALL, *WHOLE, *VERBS, "growth"}
    assert set(statements()) - looked_at == set(), (
        "a new statement: have a call that runs it in ABOUT_A_JOB or ABOUT_ALL above, so that its"
        f" plan is looked at; or in SMALL, if it reads nothing of {', '.join(sorted(HISTORY))}"
    )
