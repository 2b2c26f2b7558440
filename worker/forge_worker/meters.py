"""Meters: what an agent counts and times from its start, at its gateway and its object store."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, BinaryIO, cast

from forge_schema.model.lease import End, Ended, Fence, Grant, Renewal
from forge_schema.model.states import WorkerStatus
from forge_schema.model.worker import Capacity
from forge_schema.storage import Objects, Progress, Taken
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from forge_worker.queue.gateway import Gateway

# Round trips to the queue; a claim over HTTP may wait for work.
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class AgentMeters:
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


class MeteredGateway:
    """Count claims, renewals and ends; pass everything else through."""

    def __init__(self, gateway: Gateway, meters: AgentMeters) -> None:
        self._gateway = gateway
        self._meters = meters

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the gateway has
        return getattr(self._gateway, name)

    def finish_and_claim(
        self, ends: Sequence[End], free: Capacity, count: int
    ) -> tuple[list[Ended], list[Grant]]:
        with self._meters.claim():
            ended, grants = self._gateway.finish_and_claim(ends, free, count)
        self._meters.ended(ends, ended)
        self._meters.claimed(len(grants))
        return ended, grants

    def finish(self, ends: Sequence[End]) -> list[Ended]:
        with self._meters.finish():
            ended = self._gateway.finish(ends)
        self._meters.ended(ends, ended)
        return ended

    def renew(
        self,
        leases: Sequence[Fence],
        status: WorkerStatus,
        condition: Mapping[str, object] | None = None,
    ) -> Renewal:
        with self._meters.renewal():
            return self._gateway.renew(leases, status, condition)


class MeteredObjects:
    """Count the bytes stored; pass everything else through."""

    def __init__(self, objects: Objects, meters: AgentMeters) -> None:
        self._objects = objects
        self._meters = meters

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        return getattr(self._objects, name)

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        stored = self._objects.put(key, data, if_absent=if_absent)
        self._meters.uploaded(len(data) if stored else 0)
        return stored

    def put_part(self, key: str, file: BinaryIO, offset: int, size: int) -> bool:
        stored = self._objects.put_part(key, file, offset, size)
        self._meters.uploaded(size if stored else 0)
        return stored

    def put_unread(
        self,
        key: Callable[[str], str],
        file: BinaryIO,
        offset: int,
        size: int,
        wanted: Callable[[str], bool],
        /,
    ) -> Taken | None:
        taken = self._objects.put_unread(key, file, offset, size, wanted)
        self._meters.uploaded(size if taken is not None and taken.kept else 0)
        return taken

    def put_file(
        self, key: str, path: Path, *, if_absent: bool = False, progress: Progress | None = None
    ) -> bool:
        size = path.stat().st_size
        stored = self._objects.put_file(key, path, if_absent=if_absent, progress=progress)
        self._meters.uploaded(size if stored else 0)
        return stored


def metered_gateway(gateway: Gateway, meters: AgentMeters) -> Gateway:
    """Return a gateway that counts."""
    return cast("Gateway", MeteredGateway(gateway, meters))


def metered_objects(objects: Objects, meters: AgentMeters) -> Objects:
    """Return an object store that counts."""
    return cast("Objects", MeteredObjects(objects, meters))
