"""A fleet at its usual pace, and its users, on one event loop and plain sockets."""

import asyncio
import json
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from uuid import UUID

from forge_schema.model.lease import Fence

from benchmarks.fleet.simulator import HEARTBEAT_S, POLL_S, SMALL_JOB_S
from benchmarks.fleet.world import Simulated
from benchmarks.server.messages import beat, look, submission
from benchmarks.server.wire import Answer, Wire, hear

# Streams that break are opened again within this time, and so many at once.
AGAIN_S, AT_ONCE = 5.0, 50
# Loopback addresses that share the connections, as machines of a fleet have their own.
ADDRESSES = 250
READS = (
    "/api/v1/queue/jobs?count=50",
    "/api/v1/queue/jobs?state=running&count=50",
    "/api/v1/overview",
    "/api/v1/queue/jobs/{job}",
    "/api/v1/queue/jobs/{job}/explain",
    "/api/v1/workers/1",
)


@dataclass
class Seen:
    """Of each kind of request when it was due and how long it took from then, in seconds."""

    took: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    bad: list[tuple[float, str, int]] = field(default_factory=list)
    # How late this process itself was.
    late: list[float] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)
    woken: int = 0
    broken: Counter[str] = field(default_factory=Counter)


class Load:
    """All requests; `open` is how many streams are."""

    def __init__(self, base: str, fleet: list[Simulated], users: dict[str, dict[str, str]]) -> None:
        self._wires = [Wire(base, f"127.1.0.{n + 1}") for n in range(ADDRESSES)]
        self._base, self._fleet, self._users = base, fleet, users
        self._opening = asyncio.Semaphore(AT_ONCE)
        self._woken = {one.id: asyncio.Event() for one in fleet}
        self._all_open = asyncio.Event()
        self.open = 0
        self.seen = Seen()

    async def streams(self) -> list[asyncio.Task[None]]:
        """Open every worker's stream, and wait until all are open."""
        tasks = [asyncio.create_task(self._stream(one)) for one in self._fleet]
        await self._all_open.wait()
        return tasks

    def fleet(self) -> list[asyncio.Task[None]]:
        """Have every worker renew its lease, and the idle ones look for work."""
        idle = [one for one in self._fleet if not one.has_gpu]
        acts = [*map(self._beats, self._fleet), *map(self._works, idle)]
        return [asyncio.create_task(act) for act in acts]

    def people(self, submits: float, reads: float) -> list[asyncio.Task[None]]:
        """Have users submit and read, so many times a second."""
        acts = [self._each(submits, self._submit), self._each(reads, self._read)]
        return [asyncio.create_task(act) for act in acts]

    async def _stream(self, worker: Simulated) -> None:
        while True:
            telling = asyncio.Event()
            with suppress(OSError):
                await self._opening.acquire()
                freed = asyncio.create_task(self._first(telling))
                try:
                    await hear(
                        self._base,
                        worker.token,
                        lambda line, told=telling: self._heard(worker, line, told),  # type: ignore[misc]  # bound at once
                        _address(worker),
                    )
                finally:
                    self.open -= telling.is_set()
                    self.seen.broken["streams"] += 1
                    telling.set()
                    await freed
            await asyncio.sleep(random.uniform(0, AGAIN_S))  # noqa: S311  no secret

    async def _first(self, telling: asyncio.Event) -> None:
        await telling.wait()
        self._opening.release()

    def _heard(self, worker: Simulated, line: bytes, told: asyncio.Event) -> None:
        if not told.is_set():
            told.set()
            self.open += 1
            if self.open == len(self._fleet):
                self._all_open.set()
        if line.startswith(b"event: ready"):
            self.seen.woken += 1
            self._woken[worker.id].set()

    async def _beats(self, worker: Simulated) -> None:
        due = perf_counter() + random.uniform(0, HEARTBEAT_S)  # noqa: S311  no secret
        while True:
            await self._until(due)
            await self._asked("heartbeat", due, worker, "heartbeat", beat(worker))
            due = max(due + HEARTBEAT_S, perf_counter())

    async def _works(self, worker: Simulated) -> None:
        woken, pause_s = self._woken[worker.id], random.uniform(0, POLL_S)  # noqa: S311  as above
        while True:
            hinted = False
            if worker.fence:
                await asyncio.sleep(random.expovariate(1 / SMALL_JOB_S))
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        hinted = await woken.wait()
            pause_s = POLL_S
            woken.clear()
            kind = "end and claim" if worker.fence else "claim"
            body = look(worker, hinted=hinted)
            answer = await self._asked(kind, perf_counter(), worker, "claim", body)
            if answer.status == 200:
                grants = json.loads(answer.body)["grants"]
                worker.fence = _fence(grants[0]) if grants else None

    async def _each(self, per_s: float, act: Callable[[float], Awaitable[None]]) -> None:
        due, under_way = perf_counter(), set()
        while True:
            due += 1 / per_s
            await self._until(due)
            task = asyncio.ensure_future(act(due))
            under_way.add(task)
            task.add_done_callback(under_way.discard)

    async def _submit(self, due: float) -> None:
        body, user = submission(), self._users["ann"]
        answer = await self._wire().ask("POST", "/api/v1/queue/submit", user, body)
        self._note("submit", due, answer)
        if answer.status == 200:
            self.seen.jobs += json.loads(answer.body)["job_ids"]

    async def _read(self, due: float) -> None:
        job = random.choice(self.seen.jobs or [1])  # noqa: S311  as above
        path = random.choice(READS).format(job=job)  # noqa: S311  as above
        self._note("read", due, await self._wire().ask("GET", path, self._users["root"]))

    async def _asked(
        self, kind: str, due: float, worker: Simulated, path: str, body: bytes
    ) -> Answer:
        own = {"X-Worker-Token": worker.token}
        wire = self._wires[worker.id % ADDRESSES]
        answer = await wire.ask("POST", f"/api/v1/workers/{path}", own, body)
        self._note(kind, due, answer)
        return answer

    def _note(self, kind: str, due: float, answer: Answer) -> None:
        self.seen.took[kind].append((due, perf_counter() - due))
        if answer.status != 200:
            self.seen.bad.append((due, kind, answer.status))

    def _wire(self) -> Wire:
        return random.choice(self._wires)  # noqa: S311  as above

    async def _until(self, due: float) -> None:
        await asyncio.sleep(max(0.0, due - perf_counter()))
        self.seen.late.append(perf_counter() - due)


def _address(worker: Simulated) -> str:
    return f"127.2.{worker.id // ADDRESSES}.{worker.id % ADDRESSES + 1}"


def _fence(said: dict[str, object]) -> Fence:
    return Fence(int(str(said["job_id"])), int(str(said["token"])), UUID(str(said["nonce"])))
