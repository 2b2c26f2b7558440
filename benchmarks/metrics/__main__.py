"""How many lines of metrics are stored per second, by how many of them a call has.

`python benchmarks/metrics` prints the table of RESULTS.md; `--rounds` sets how often.
"""

import argparse
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from uuid import uuid4

from forge_schema.database.pool import Database
from forge_schema.model.attempt_records import MetricLines, MetricRecord
from forge_schema.model.lease import Fence
from forge_schema.model.spec import JobSpec
from forge_schema.model.worker import Capacity, Machine
from forge_worker.queue.gateway import SqlGateway

# A call of a worker has at most 5000 lines.
SIZES = (1_000, 5_000, 25_000, 100_000)
PLENTY = Capacity(1000, 1 << 20, 1 << 30)


def main() -> None:
    """Store batches of each size in turn, and print one line for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with gateway() as queue:
        rounds = [{size: rate(queue, size) for size in SIZES} for _ in range(given.rounds)]
    print("| lines in a call | lines per second | as a multiple of those at 1,000 | all rounds |")
    print("|---|---|---|---|")
    for size in SIZES:
        ratios = sorted(each[size] / each[SIZES[0]] for each in rounds)
        found = statistics.median(each[size] for each in rounds)
        middle = statistics.median(ratios)
        print(f"| {size:,} | {found:,.0f} | {middle:.2f} | {ratios[0]:.2f} to {ratios[-1]:.2f} |")


@contextmanager
def gateway() -> Iterator[SqlGateway]:
    """Start a durable Postgres, and register a worker that runs nothing."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "queue"))
    from cluster import cluster, database  # noqa: PLC0415 - the benchmark of the queue has it

    with cluster() as url, Database(database(url, "metrics")) as reached:
        worker = SqlGateway(reached, name="bench", ttl=timedelta(hours=1))
        worker.register(Machine(uuid4(), 1000, 1 << 20, 1 << 30))
        yield worker


def rate(queue: SqlGateway, size: int) -> float:
    """Store a job's lines in one call, and return how many that is per second."""
    fence = claimed(queue)
    lines = [MetricRecord(n, n, {"step": n, "loss": 1 / (n + 1), "lr": 0.1}) for n in range(size)]
    began = perf_counter()
    assert queue.record(fence, MetricLines(lines))
    return size / (perf_counter() - began)


def claimed(queue: SqlGateway) -> Fence:
    """Submit a job and claim it."""
    queue.queue.submit([JobSpec(name="job", owner="ann", command=["true"])])
    queue.new_work()
    (grant,) = queue.finish_and_claim([], PLENTY, 1)[1]
    return grant.fence


if __name__ == "__main__":
    main()
