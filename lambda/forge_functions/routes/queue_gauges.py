"""Gauges of the queue, the same on every server."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from threading import Lock
from time import monotonic

from forge_schema.database.pool import Database, Row
from forge_schema.model.errors import ForgeError
from forge_schema.model.states import UNFINISHED_STATES
from forge_schema.read.overview import QueueCounts
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

# Values are cached for so long.
FRESH_S = 5.0
# Maximum number of shapes, most in demand first.
MOST_SHAPES = 200
SHAPE = ("shape", "accelerator", "gpus", "gpu_model")


@dataclass(frozen=True, slots=True)
class Seen:
    """One snapshot of the gauges."""

    lanes: list[Row]
    fleet: list[Row]
    now: Row


class QueueGauges:
    """Runs a few bounded queries. While the database is unavailable, reports only that."""

    def __init__(
        self,
        database: Callable[[], Database],
        ttl: timedelta,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._database = database
        self._ttl = ttl
        self._clock = clock
        self._lock = Lock()
        self._gauges: QueueCounts | None = None
        self._seen: Seen | None = None
        self._asked_at = float("-inf")

    def registry(self, scope: list[str] | None) -> CollectorRegistry:
        """Return the gauges of some owners' jobs; None sees those of all owners."""
        registry = CollectorRegistry()
        registry.register(_Gauges(self.families(scope)))
        return registry

    def families(self, scope: list[str] | None) -> list[Metric]:
        """Return the cached gauges, or read them now; with a scope, only those owners' jobs."""
        with self._lock:
            if self._clock() - self._asked_at > FRESH_S:
                self._seen = self._asked()
                self._asked_at = self._clock()
            return list(self._shown(scope))

    def _asked(self) -> Seen | None:
        try:
            if self._gauges is None:
                self._gauges = QueueCounts(self._database(), self._ttl)
            gauges = self._gauges
            seen = Seen(gauges.lanes(), gauges.fleet(), gauges.now())
            gauges.count_ended()
        except ForgeError:
            return None
        return seen

    def _shown(self, scope: list[str] | None) -> Iterator[Metric]:
        up = self._seen is not None
        yield _gauge("database_up", "Whether the database answers.", up)
        if self._seen is None or self._gauges is None:
            return
        lanes = self._seen.lanes
        yield from _of_lanes([lane for lane in lanes if scope is None or lane["owner"] in scope])
        yield from _of_fleet(self._seen)
        if scope is None:
            # They are counted by queue, of all owners.
            yield from _ended(self._gauges)


class _Gauges(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def _of_lanes(lanes: list[Row]) -> Iterator[Metric]:
    jobs = _family(
        "jobs",
        "Jobs in a queue; at most 10000 waiting jobs of each lane are counted.",
        "queue",
        "state",
    )
    asking = _family(
        "jobs_awaiting_approval", "Held jobs that wait for an admin's approval.", "queue"
    )
    gpus = _family("gpus_used", "GPUs in use by the jobs of a queue.", "queue")
    oldest = _family(
        "oldest_ready_seconds", "Seconds that the oldest queued job has waited.", "queue"
    )
    for queue, some in _by_queue(lanes).items():
        for state in UNFINISHED_STATES:
            jobs.add_metric([queue, state], sum(lane[state] for lane in some))
        asking.add_metric([queue], sum(lane["awaiting_approval"] for lane in some))
        gpus.add_metric([queue], sum(lane["gpus_used"] for lane in some))
        oldest.add_metric([queue], max(lane["oldest_s"] for lane in some))
    yield from (jobs, asking, gpus, oldest, _demand(lanes))


def _by_queue(lanes: list[Row]) -> dict[str, list[Row]]:
    queues: dict[str, list[Row]] = defaultdict(list)
    for lane in lanes:
        queues[lane["queue"]].append(lane)
    return queues


def _demand(lanes: list[Row]) -> Metric:
    wanted: dict[tuple[str, ...], int] = defaultdict(int)
    for lane in lanes:
        shape = (lane["shape_id"], lane["accelerator"], lane["gpus"], lane["gpu_model"])
        waiting = 0 if lane["paused"] else lane["ready"]
        wanted[tuple(map(str, shape))] += waiting + lane["running"]
    family = _family("shape_demand_jobs", "Jobs of a shape that are running or ready.", *SHAPE)
    most = sorted(wanted.items(), key=lambda pair: -pair[1])[:MOST_SHAPES]
    for shape_labels, count in most:
        if count:
            family.add_metric(shape_labels, count)
    return family


def _of_fleet(seen: Seen) -> Iterator[Metric]:
    workers = _family("workers", "Workers by status.", "status")
    gpus = _family("gpus", "GPUs of workers by status.", "status")
    for row in seen.fleet:
        workers.add_metric([row["status"]], row["workers"])
        gpus.add_metric([row["status"]], row["gpus"])
    now = seen.now
    yield from (workers, gpus)
    yield _gauge("leases", "Leases: running jobs, one per rank.", now["leases"])
    yield _gauge(
        "leases_expiring", "Leases with less than a quarter of their time left.", now["expiring"]
    )
    yield _gauge(
        "overdue_seconds", "Seconds that the most overdue job has been due.", now["late_s"]
    )
    yield _gauge("set_aside_rows", "Rows that no sweeper could move.", now["set_aside"])
    if now["silent_s"] is not None:
        about = "Seconds since a sweeper last ticked."
        yield _gauge("sweeper_last_tick_age_seconds", about, now["silent_s"])


def _ended(gauges: QueueCounts) -> Iterator[Metric]:
    about = "Attempts ended since this server was first scraped, a minute late."
    ended = CounterMetricFamily("forge_attempts_ended", about, labels=["queue", "reason"])
    seconds = CounterMetricFamily(
        "forge_gpu_seconds", "GPU time of these attempts, in seconds.", labels=["queue"]
    )
    by_queue: dict[str, float] = defaultdict(float)
    for (queue, reason), tally in gauges.ended.items():
        ended.add_metric([queue, reason], tally.attempts)
        by_queue[queue] += tally.gpu_seconds
    for queue, used in by_queue.items():
        seconds.add_metric([queue], used)
    yield from (ended, seconds)


def _family(name: str, about: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"forge_{name}", about, labels=labels)


def _gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"forge_{name}", about, value=float(value))
