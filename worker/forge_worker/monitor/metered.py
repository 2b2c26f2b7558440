"""Wrappers that count what passes through an agent's gateway and object store."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from forge_schema.model.lease import End, Ended, Fence, Grant, Renewal
from forge_schema.model.states import WorkerStatus
from forge_schema.model.worker import Capacity
from forge_schema.storage import Progress

from forge_worker.monitor.meters import Meters
from forge_worker.queue.gateway import Gateway
from forge_worker.queue.objects import Objects


class MeteredGateway:
    """Count claims, renewals and ends; pass everything else through."""

    def __init__(self, gateway: Gateway, meters: Meters) -> None:
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

    def __init__(self, objects: Objects, meters: Meters) -> None:
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

    def put_file(
        self, key: str, path: Path, *, if_absent: bool = False, progress: Progress | None = None
    ) -> bool:
        size = path.stat().st_size
        stored = self._objects.put_file(key, path, if_absent=if_absent, progress=progress)
        self._meters.uploaded(size if stored else 0)
        return stored


def metered_gateway(gateway: Gateway, meters: Meters) -> Gateway:
    """Return a gateway that counts."""
    return cast("Gateway", MeteredGateway(gateway, meters))


def metered_objects(objects: Objects, meters: Meters) -> Objects:
    """Return an object store that counts."""
    return cast("Objects", MeteredObjects(objects, meters))
