"""Make the past, measure, and print the tables."""

import argparse
import platform
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter

import psycopg
from cluster import cluster, database
from forge_schema.database.pool import Database
from forge_schema.read.report_definitions import REPORTS
from forge_schema.read.reports import Reports
from measure import Compared, compared
from support.past.history import ATTEMPTS, fill
from support.past.plan_world import World, world

from benchmarks.pages.learning import learn
from benchmarks.pages.site import opened

# As many long runs are compared.
LONG = 2
WEEK = "SELECT count(*), sum(cost) FROM attempt WHERE finished_at >= %s"


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=ATTEMPTS, help="how long the past is")
    parser.add_argument("--rounds", type=int, default=31, help="how often each is measured")
    parser.add_argument("--runs", type=int, default=500, help="runs of one experiment")
    parser.add_argument("--lines", type=int, default=1_000_000, help="lines of each long run")
    parser.add_argument("--only-runs", action="store_true", help="measure nothing else")
    asked = parser.parse_args()
    with cluster() as server_url:
        url = database(server_url, "past")
        began = monotonic()
        past = fill(url, asked.attempts)
        print(f"{past}, made in {monotonic() - began:.0f} s; Python {platform.python_version()}\n")
        with Database(url, size=8) as queue, TemporaryDirectory() as store:
            looked = world(queue, past)
            long = learn(url, runs=asked.runs, long=LONG, lines=asked.lines)
            show("of runs", "SELECT 1", of_runs(long, url, store, asked.rounds))
            if asked.only_runs:
                return
            show("page or endpoint", "SELECT 1", by_http(looked, url, store, asked.rounds))
            show("report of 7 days", "count and sum", by_sql(looked, url, asked.rounds))


def show(what: str, reference: str, rows: Iterator[Compared]) -> None:
    """Print a table, each line as soon as it is known."""
    print(f"| {what} | ms | {reference}, ms | ratio | middle half |")
    print("|---|---|---|---|---|")
    for row in rows:
        middle = f"{row.low:.1f} to {row.high:.1f}"
        print(
            f"| {row.what} | {row.one:.1f} | {row.other:.2f} | {row.ratio:.1f} | {middle} |",
            flush=True,
        )
    print()


def by_http(looked: World, url: str, store: str, rounds: int) -> Iterator[Compared]:
    """Compare each page with a request that asks the database for nothing but 1."""
    with opened(url, store) as site:
        for path in paths(looked):
            yield one(path, lambda p=path: site.get(p), site.nothing, rounds)  # type: ignore[misc] # bound at once


def of_runs(long: list[int], url: str, store: str, rounds: int) -> Iterator[Compared]:
    """Compare the table of runs and long curves with the same request."""
    runs = "q=experiment:measured"
    compared_jobs = "&".join(f"job={job}" for job in long)
    series = f"/jobs/{long[-1]}/series"
    with opened(url, store) as site:
        for path in (
            f"/runs?{runs}",
            f"/runs?{runs}&sort=metrics.loss.best",
            f"/api/v1/queue/runs?{runs}&sort=loss.best&count=1000",
            series,
            f"{series}?x=step&since=0&until=10000",
            f"/compare?{compared_jobs}",
        ):
            yield one(path, lambda p=path: site.get(p), site.nothing, rounds)  # type: ignore[misc] # bound at once

        def each() -> None:
            for job in long:
                site.get(f"/jobs/{job}/series")

        yield one(f"the curves of {len(long)} such runs", each, site.nothing, rounds)


def by_sql(looked: World, url: str, rounds: int) -> Iterator[Compared]:
    """Compare each report with a count and a sum over the attempts of the same days."""
    reports, since = Reports(looked.database), datetime.now(UTC) - timedelta(days=7)
    with psycopg.connect(url, autocommit=True) as plain:

        def week() -> None:
            plain.execute(WEEK, [since], prepare=True).fetchone()

        for name, report in REPORTS.items():
            age = "7d" if report.time else None
            yield one(name, lambda n=name, s=age: reports.rows(n, since=s), week, rounds)  # type: ignore[misc] # as above


def one(what: str, it: Callable[[], object], other: Callable[[], object], rounds: int) -> Compared:
    """Measure one thing and its reference in turn, in milliseconds."""
    return compared(f"`{what}`", lambda: timed(it), lambda: timed(other), rounds=rounds)


def timed(it: Callable[[], object]) -> float:
    """Return how many milliseconds a call takes."""
    began = perf_counter()
    it()
    return 1000 * (perf_counter() - began)


def paths(looked: World) -> list[str]:
    """Return what is asked for, as an admin."""
    jobs, worker = looked.jobs_by, looked.worker_id
    pages = [
        "/",
        "/jobs",
        "/jobs?q=state:failed",
        "/jobs?q=owner:quiet",
        "/jobs?q=owner:quiet+state:failed",
        "/jobs?q=worker:h100*",
    ]
    pages += [f"/jobs/{jobs[which]}" for which in ("newest", "running", "ready", "long")]
    pages += ["/workers", "/workers?q=h100", f"/workers/{worker}", "/queues", "/events"]
    pages += ["/reports", "/reports/cost?since=7d"]
    endpoints = ["/api/v1/overview", "/api/v1/queue/jobs", "/api/v1/queue/jobs?state=dead"]
    for which in ("newest", "stuck"):
        endpoints += [
            f"/api/v1/queue/jobs/{jobs[which]}",
            f"/api/v1/queue/jobs/{jobs[which]}/explain",
        ]
    endpoints += [f"/api/v1/queue/jobs/{jobs['long']}/{what}" for what in ("metrics", "series")]
    endpoints += ["/api/v1/workers", f"/api/v1/workers/{worker}", "/api/v1/admin/events?count=100"]
    return [*pages, *endpoints]
