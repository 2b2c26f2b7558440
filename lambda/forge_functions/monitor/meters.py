"""Meters: counters of a server process since its start."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from forge_functions.version import VERSION

# From a read by primary key to a claim that waits for work.
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Meters:
    """Meters in their own registry, so that a process may have several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        info = Gauge("forge_info", "Its version; always 1.", ["version"], registry=self.registry)
        info.labels(version=VERSION).set(1)
        self._requests = Counter(
            "forge_http_requests",
            "Requests answered by this server, by route.",
            ["route", "method", "status"],
            registry=self.registry,
        )
        self._took = Histogram(
            "forge_http_request_duration_seconds",
            "Seconds until the end of the answer; claims and streams wait for work.",
            ["route", "method"],
            registry=self.registry,
            buckets=BUCKETS_S,
        )
        self.in_progress = Gauge(
            "forge_http_requests_in_progress", "Requests in progress.", registry=self.registry
        )
        self._claimed = Counter(
            "forge_claims", "Jobs granted to workers by this server.", registry=self.registry
        )
        self._ended = Counter(
            "forge_ends", "Ends of attempts reported to this server.", registry=self.registry
        )

    def answered(self, route: str, method: str, status: int, took_s: float) -> None:
        """Count an answer."""
        self._requests.labels(route=route, method=method, status=str(status)).inc()
        self._took.labels(route=route, method=method).observe(took_s)

    def exchanged(self, ended: int, granted: int) -> None:
        """Count the ends that a worker reported and the jobs it got."""
        self._ended.inc(ended)
        self._claimed.inc(granted)
