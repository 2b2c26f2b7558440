"""Meters: what an agent counts and times from its start."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

from forge_schema.model.lease import End, Ended
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# Round trips to the queue; a claim over HTTP may wait for work.
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Meters:
    """The meters of one agent, in their own registry so that a process may have several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._claims = self._counter("claims", "Jobs claimed from the queue.")
        self._asked = self._timer("claim_seconds", "Time until the queue answered a claim.")
        self._renewed = self._timer("renewal_seconds", "Time until the queue answered a renewal.")
        self._failed = self._counter(
            "failed_requests", "Requests that the queue did not answer, or refused.", "verb"
        )
        self._heard_at = Gauge(
            "forge_worker_last_renewal_timestamp_seconds",
            "When the queue last answered a renewal, by this machine's clock.",
            registry=self.registry,
        )
        self._ended = self._counter(
            "attempts_ended",
            "Attempts whose end the queue accepted, by reason; late means that the lease was lost.",
            "reason",
            "late",
        )
        self._uploaded = self._counter(
            "uploaded_bytes", "Bytes stored: logs, checkpoints, artifacts."
        )

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Time a claim."""
        with self._asking("claim", self._asked):
            yield

    @contextmanager
    def finish(self) -> Iterator[None]:
        """Count an end that could not be delivered."""
        with self._asking("finish", None):
            yield

    @contextmanager
    def renewal(self) -> Iterator[None]:
        """Time a renewal."""
        with self._asking("renew", self._renewed):
            yield
        self._heard_at.set_to_current_time()

    def claimed(self, count: int) -> None:
        """Count claimed jobs."""
        self._claims.inc(count)

    def ended(self, ends: Sequence[End], answers: Sequence[Ended]) -> None:
        """Count ends by the queue's answer."""
        for end, answer in zip(ends, answers, strict=True):
            late = "no" if answer.accepted else "yes"
            self._ended.labels(reason=end.reason.value, late=late).inc()

    def uploaded(self, size: int) -> None:
        """Count stored bytes."""
        self._uploaded.inc(size)

    @contextmanager
    def _asking(self, verb: str, timer: Histogram | None) -> Iterator[None]:
        began = perf_counter()
        try:
            yield
        except Exception:
            self._failed.labels(verb=verb).inc()
            raise
        if timer is not None:
            timer.observe(perf_counter() - began)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"forge_worker_{name}", about, labels, registry=self.registry)

    def _timer(self, name: str, about: str) -> Histogram:
        name = f"forge_worker_{name}"
        return Histogram(name, about, registry=self.registry, buckets=BUCKETS_S)
