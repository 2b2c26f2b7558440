"""A worker that speaks the protocol but runs nothing."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import httpx
from forge_schema.http_client import tls_context
from forge_schema.model.states import WorkerKind
from forge_schema.model.worker import Capacity, Machine
from forge_worker.circuit_breaker import Servers
from forge_worker.queue.http.gateway import HttpGateway
from forge_worker.queue.http.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from forge_schema.model.lease import Fence, Grant
    from support.http.api import Api

PLENTY = Capacity(1000, 1 << 20, 1 << 20)
FREE = {"cpus": 1000, "memory_mb": 1 << 20, "disk_mb": 1 << 20}
DIGEST = "ab" * 32


@dataclass
class RawWorker:
    """Sends the JSON that a test gives it, with its own token."""

    api: Api
    id: int
    name: str
    token: str
    boot_id: UUID = field(default_factory=uuid4)

    @property
    def headers(self) -> dict[str, str]:
        return {"X-Worker-Token": self.token}

    def post(self, path: str, body: dict[str, Any], **options: Any) -> httpx.Response:  # noqa: ANN401  httpx's own
        return self.api.http.post(
            f"/api/v1/workers{path}", json=body, headers=self.headers, **options
        )

    def get(self, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401  as above
        return self.api.http.get(f"/api/v1/workers{path}", headers=self.headers, **options)

    def machine(self, **changes: Any) -> dict[str, Any]:  # noqa: ANN401  fields of all types
        """Return the machine that it reports."""
        return {"boot_id": str(self.boot_id), **FREE, **changes}

    def register(self, **changes: Any) -> dict[str, Any]:  # noqa: ANN401  as above
        return good(self.post("/register", self.machine(**changes)))

    def claim(self, count: int = 1, **changes: Any) -> list[dict[str, Any]]:  # noqa: ANN401  as above
        """Claim, and return the grants."""
        body = {"boot_id": str(self.boot_id), "free": FREE, "count": count, **changes}
        grants: list[dict[str, Any]] = good(self.post("/claim", body))["grants"]
        return grants

    def heartbeat(self, *fences: dict[str, Any], status: str = "idle") -> dict[str, Any]:
        body = {"boot_id": str(self.boot_id), "status": status, "leases": list(fences)}
        return good(self.post("/heartbeat", body))


def good(answer: httpx.Response) -> dict[str, Any]:
    """Return the body of a successful answer."""
    assert answer.is_success, f"{answer.status_code}: {answer.text}"
    said: dict[str, Any] = answer.json()
    return said


def raw_worker(
    api: Api,
    name: str = "w",
    *,
    kind: WorkerKind = WorkerKind.PERSISTENT,
    labels: dict[str, str] | None = None,
    registered: bool = True,
) -> RawWorker:
    """Create a worker as an admin does, and register it."""
    worker_id, token = api.workers.create(name, kind=kind, labels=labels)
    made = RawWorker(api, worker_id, name, token)
    if registered:
        made.register()
    return made


def held(grant: dict[str, Any]) -> dict[str, Any]:
    """Return a grant's token in the form that the paths below its job take."""
    return {"token": grant["token"], "nonce": grant["nonce"]}


def lease(grant: dict[str, Any]) -> dict[str, Any]:
    """Return a grant's token with its job."""
    return {"job_id": grant["job_id"], **held(grant)}


def machine(boot_id: UUID | None = None, **changes: Any) -> Machine:  # noqa: ANN401  fields of all types
    """Return a machine with room for everything."""
    room = {"cpus": 1000.0, "memory_mb": 1 << 20, "disk_mb": 1 << 20}
    return Machine(**{"boot_id": boot_id or uuid4(), **room, **changes})


@contextmanager
def session(urls: Sequence[str], token: str, *, longest_pause_s: float = 0.2) -> Iterator[Session]:
    """Open a worker's session with some servers."""
    opened = Session(Servers(urls, longest_pause_s=longest_pause_s), lambda: token, tls_context())
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def gateway(urls: Sequence[str], token: str) -> Iterator[HttpGateway]:
    """Open a gateway and register."""
    with session(urls, token) as opened:
        made = HttpGateway(opened)
        made.register(machine())
        yield made


def claimed(made: HttpGateway, count: int = 1) -> list[Grant]:
    """Claim with enough room for everything."""
    return made.finish_and_claim([], PLENTY, count)[1]


def fence_of(grant: Grant) -> Fence:
    return grant.fence
