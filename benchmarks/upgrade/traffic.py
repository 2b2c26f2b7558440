"""Users and workers of a queue over HTTP, who note how long each request took, and its answer.

They use the paths and fields of the oldest release, which every later server takes.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import httpx

JOB = {"name": "j", "command": ["true"], "image": "busybox"}
ROOM = {"cpus": 64, "memory_mb": 1 << 20, "disk_mb": 1 << 20}
PAUSE_S = 0.05
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Request:
    """One request: when it began, on the clock of `time.monotonic`, and how it went."""

    began: float
    took_s: float
    verb: str
    said: str

    @property
    def failed(self) -> bool:
        """Whether it has no answer, or one other than 2xx."""
        return not self.said.startswith("2")


@dataclass
class Traffic:
    """Whom the callers call, which may change while they do, and until when."""

    server: str
    requests: list[Request] = field(default_factory=list)
    ended: int = 0
    full: Event = field(default_factory=Event)
    stop: Event = field(default_factory=Event)

    def call(self, client: httpx.Client, verb: str, path: str, **more: Any) -> Any:  # noqa: ANN401  any JSON
        """Send one request and return its answer; None if it failed."""
        began = time.monotonic()
        try:
            answer = client.request("POST" if more else "GET", f"{self.server}{path}", **more)
            said = f"{answer.status_code}" if answer.is_success else answer.text[:300]
        except httpx.HTTPError as error:
            answer, said = None, repr(error)
        request = Request(began, time.monotonic() - began, verb, said)
        self.requests.append(request)
        return None if request.failed or answer is None else answer.json()


def user(traffic: Traffic, key: str, jobs: int) -> None:
    """Submit some jobs, look at the newest and at the list, until there are enough."""
    with httpx.Client(headers={"Authorization": f"Bearer {key}"}, timeout=TIMEOUT_S) as client:
        while not traffic.full.wait(PAUSE_S):
            asked = {"jobs": [JOB] * jobs}
            made = traffic.call(client, "submit", "/api/v1/queue/submit", json=asked)
            if made:
                traffic.call(client, "show", f"/api/v1/queue/jobs/{made['job_ids'][-1]}")
            traffic.call(client, "list", "/api/v1/queue/jobs")


def worker(traffic: Traffic, token: str, jobs: int) -> None:
    """Claim some jobs, renew their leases, and end them with the next claim."""
    boot = {"boot_id": str(uuid4())}
    with httpx.Client(headers={"X-Worker-Token": token}, timeout=TIMEOUT_S) as client:

        def tell(verb: str, **body: object) -> Any:  # noqa: ANN401  any JSON
            return traffic.call(client, verb, f"/api/v1/workers/{verb}", json={**boot, **body})

        tell("register", **ROOM)
        held: list[dict[str, object]] = []
        while not traffic.stop.wait(PAUSE_S) or held:
            count = 0 if traffic.stop.is_set() else jobs
            answer = tell("claim", ends=held, free=ROOM, count=count)
            if answer is None:
                continue
            traffic.ended += len(held)
            held = [{n: one[n] for n in ("job_id", "token", "nonce")} for one in answer["grants"]]
            if held:
                tell("heartbeat", leases=held, status="busy")


@contextmanager
def running(traffic: Traffic, *callers: tuple[Any, ...]) -> Iterator[None]:
    """Run callers, each a function with its arguments after the traffic, while the block runs."""
    threads = [Thread(target=act, args=(traffic, *given)) for act, *given in callers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        traffic.full.set()
        traffic.stop.set()
        for thread in threads:
            thread.join()
