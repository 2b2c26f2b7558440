"""The meters: what a server process counts of itself from its start on."""

from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

# From a read by a primary key to a claim that waits for work.
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Meters:
    """In a registry of their own, so that a process may have several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        info = Gauge("forge_info", "Its version; always 1.", ["version"], registry=self.registry)
        info.labels(version=version("forge-queue")).set(1)
        self._requests = Counter(
            "forge_http_requests",
            "Requests that this server answered, by route.",
            ["route", "method", "status"],
            registry=self.registry,
        )
        self._took = Histogram(
            "forge_http_request_duration_seconds",
            "Seconds to the end of the answer; claims and streams wait for work.",
            ["route", "method"],
            registry=self.registry,
            buckets=BUCKETS_S,
        )
        self.in_progress = Gauge(
            "forge_http_requests_in_progress", "Requests under way.", registry=self.registry
        )
        self._claimed = Counter(
            "forge_claims", "Jobs that this server gave to workers.", registry=self.registry
        )
        self._ended = Counter(
            "forge_ends", "Ends of attempts that it was told.", registry=self.registry
        )

    def answered(self, route: str, method: str, status: int, took_s: float) -> None:
        """Count an answer."""
        self._requests.labels(route=route, method=method, status=str(status)).inc()
        self._took.labels(route=route, method=method).observe(took_s)

    def exchanged(self, ended: int, granted: int) -> None:
        """Count what a worker told and got."""
        self._ended.inc(ended)
        self._claimed.inc(granted)
