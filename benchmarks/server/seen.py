"""What was seen of a run, as a table and a list."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg

from benchmarks.server.load import Seen

LOST = """
SELECT count(*) FROM attempt
WHERE reason = 'worker_lost' AND finished_at > clock_timestamp() - make_interval(secs => %s)
"""
KNOWN = "SELECT count(*) FROM job WHERE id = ANY(%s)"
CLAIMED = """
SELECT extract(epoch FROM claimed_at - ready_at)::float8
FROM (
    SELECT job_id, claimed_at, ready_at FROM lease
    UNION ALL
    SELECT job_id, claimed_at, ready_at FROM attempt
) AS one
WHERE job_id = ANY(%s)
"""
# How long after a fault requests count as disturbed.
DISTURBED_S = 30.0
COLUMNS = ("request", "a second", "p50 ms", "p99 ms", "p99 with faults", "longest s", "failed")


@dataclass(frozen=True)
class Struck:
    """A fault: when it struck, and when what it had hit was back."""

    name: str
    at: float
    back: float

    def near(self, due: float) -> bool:
        """Tell whether a request was due shortly after it, or under way when it struck."""
        return self.at - 1 <= due < self.at + DISTURBED_S


@dataclass
class Run:
    """A run of this many workers; `streams` has how many were open when."""

    seen: Seen
    workers: int
    began: float = 0.0
    seconds: float = 0.0
    faults: list[Struck] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    streams: list[tuple[float, int]] = field(default_factory=list)
    server_cpu_s: float = 0.0
    own_cpu_s: float = 0.0

    def disturbed(self, due: float) -> bool:
        return any(fault.near(due) for fault in self.faults)


def show(run: Run, url: str) -> None:
    """Print what was seen."""
    print(f"\n| {' | '.join(COLUMNS)} |")
    print("|" + "---|" * len(COLUMNS))
    for kind, took in sorted(run.seen.took.items(), key=lambda one: -len(one[1])):
        print(f"| {' | '.join(cells(run, kind, took))} |")
    print()
    for line in (*of_processes(run), *of_faults(run), *of_jobs(run, url)):
        print(f"- {line}")


def cells(run: Run, kind: str, took: list[tuple[float, float]]) -> Iterator[str]:
    """Yield a row of the table."""
    calm = [seconds for due, seconds in took if not run.disturbed(due)]
    every = [seconds for _, seconds in took]
    bad = Counter(status for _, of, status in run.seen.bad if of == kind)
    yield kind
    yield f"{len(took) / run.seconds:.1f}"
    yield from (ms(calm, 0.5), ms(calm, 0.99), ms(every, 0.99))
    yield f"{max(every):.1f}"
    yield ", ".join(f"{n} x {status or 'broken'}" for status, n in bad.items()) or "0"


def of_processes(run: Run) -> Iterator[str]:
    """Yield what the server and this load used."""
    requests, memory = sum(map(len, run.seen.took.values())), run.memory_mb
    late = Counter(
        f"{kind} {status or 'broken'}"
        for due, kind, status in run.seen.bad
        if not run.disturbed(due)
    )
    yield f"{requests:,} requests, {requests / run.seconds:.0f} a second, {run.workers:,} streams"
    yield f"failed more than {DISTURBED_S:.0f} s after a fault: {late.total()} {dict(late) or ''}"
    cpu = run.server_cpu_s / run.seconds
    yield f"the server: {memory[0]:.0f} MB at first, at most {max(memory):.0f}; CPU {cpu:.2f}"
    lags = run.seen.late
    yield (
        f"this load: CPU {run.own_cpu_s / run.seconds:.2f};"
        f" {ms(lags, 0.5)} ms late (p50), {ms(lags, 0.99)} ms (p99)"
    )


def of_faults(run: Run) -> Iterator[str]:
    """Yield how each fault ended."""
    for fault in run.faults:
        failed = [due - fault.at for due, _, _ in run.seen.bad if fault.near(due)]
        last = f", the last {max(failed):.1f} s after it" if failed else ""
        whole = [at for at, count in run.streams if at > fault.back and count == run.workers]
        streams = f"all streams after {whole[0] - fault.at:.0f} s" if whole else "streams missing"
        back = f"back after {fault.back - fault.at:.1f} s"
        yield f"{fault.name}: {back}; {len(failed)} requests failed{last}; {streams}"


def of_jobs(run: Run, url: str) -> Iterator[str]:
    """Yield what became of jobs and leases."""
    jobs = run.seen.jobs
    with psycopg.connect(url) as connection:
        [lost] = connection.execute(LOST, [run.seconds + 60]).fetchone() or [0]
        [known] = connection.execute(KNOWN, [jobs]).fetchone() or [0]
        waited = [row[0] for row in connection.execute(CLAIMED, [jobs]).fetchall()]
    yield f"submits acknowledged: {len(jobs)}; of these jobs the database has {known}"
    yield f"from submit to claim: {ms(waited, 0.5)} ms (p50), {ms(waited, 0.99)} ms (p99)"
    yield f"leases lost: {lost}"


def ms(seconds: list[float], part: float) -> str:
    """Return a percentile in milliseconds; 0 of nothing."""
    ordered = sorted(seconds)
    found = ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0
    return f"{1000 * found:.0f}"
