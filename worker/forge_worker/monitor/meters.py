"""The meters: what an agent counts of itself from its start on."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

from forge_schema.model.lease import End, Ended
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# Round trips to the queue; a claim over HTTP may wait for work.
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Meters:
    """In a registry of their own, so that a process may have several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._claims = self._counter("claims", "Jobs that the queue gave to this worker.")
        self._asked = self._timer("claim_seconds", "How long the queue took to answer a claim.")
        self._renewed = self._timer("renewal_seconds", "How long it took to answer a renewal.")
        self._failed = self._counter(
            "failed_requests", "Questions that the queue did not answer, or refused.", "verb"
        )
        self._heard_at = Gauge(
            "forge_worker_last_renewal_timestamp_seconds",
            "When the queue last answered a renewal, by this machine's clock.",
            registry=self.registry,
        )
        self._ended = self._counter(
            "attempts_ended",
            "Attempts whose end the queue took, by reason; late is one whose lease was lost.",
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
        """Notice whether an end could be told."""
        with self._asking("finish", None):
            yield

    @contextmanager
    def renewal(self) -> Iterator[None]:
        """Time a renewal."""
        with self._asking("renew", self._renewed):
            yield
        self._heard_at.set_to_current_time()

    def claimed(self, count: int) -> None:
        """Count jobs that were claimed."""
        self._claims.inc(count)

    def ended(self, ends: Sequence[End], answers: Sequence[Ended]) -> None:
        """Count ends by what became of them."""
        for end, answer in zip(ends, answers, strict=True):
            late = "no" if answer.accepted else "yes"
            self._ended.labels(reason=end.reason.value, late=late).inc()

    def uploaded(self, size: int) -> None:
        """Count what was stored, in bytes."""
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
