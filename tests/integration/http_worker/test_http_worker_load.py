"""Fifty workers polling and streaming at one server while hundreds of jobs pass."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.model.lease import End, Fence
from forge_schema.model.states import Phase, Reason, WorkerStatus
from forge_worker.circuit_breaker import ServerUnreachable
from forge_worker.queue.hints import HttpHints
from forge_worker.queue.http.gateway import HttpGateway
from support.http.http_worker import PLENTY, machine, session
from support.http.server_process import server_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forge_worker.queue.http.session import Session
    from support.queue.rig import Rig
    from support.waiting import Eventually

WORKERS = 50
JOBS = 400
PARTS = 4
POLL_S = 2.0
MEBIBYTE = 1 << 20
# Any remaining growth is the allocator's, and not proportional to the number of jobs.
GROWTH_BYTES = 10 * MEBIBYTE


@dataclass
class LightWorker:
    """Claims, reports and finishes as an agent does, but runs nothing."""

    url: str
    token: str
    streams: bool
    ended: threading.Event
    ran: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    woken: threading.Event = field(default_factory=threading.Event)
    beats: int = 0

    def run(self) -> None:
        with session([self.url], self.token) as opened:
            gateway = HttpGateway(opened)
            gateway.register(machine())
            with self._hints(opened, gateway):
                while not self.ended.is_set():
                    self._turn(gateway)
                    self.woken.wait(POLL_S)
                    self.woken.clear()
            gateway.disconnect()

    def _turn(self, gateway: HttpGateway) -> None:
        held: list[Fence] = []
        while not self.ended.is_set():
            ends = [End(fence, Reason.SUCCEEDED, 0) for fence in held]
            try:
                done, grants = gateway.finish_and_claim(ends, PLENTY, 1)
            except ServerUnreachable:
                self.ended.wait(0.2)
                continue
            self.ran += [one.job_id for one in done if one.accepted]
            self.refused += [one.job_id for one in done if not one.accepted]
            held = [grant.fence for grant in grants]
            self.beats += 1
            if self.beats % 5 == 0:
                gateway.renew(held, WorkerStatus.BUSY if held else WorkerStatus.IDLE)
            if not held:
                return
            gateway.report(held[0], Phase.RUNNING, devices=[])

    @contextmanager
    def _hints(self, opened: Session, gateway: HttpGateway) -> Iterator[None]:
        if not self.streams:
            yield
            return

        def work() -> None:
            gateway.new_work()
            self.woken.set()

        hints = HttpHints(opened, work=work, asked=lambda: None)
        hints.start()
        try:
            yield
        finally:
            hints.end()


@contextmanager
def at_work(workers: list[LightWorker], ended: threading.Event) -> Iterator[None]:
    """Have the workers work until the block ends."""
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for worker, thread in zip(workers, threads, strict=True):
            worker.woken.set()
            thread.join(60)


def test_fifty_workers_and_hundreds_of_jobs(
    rig: Rig, tmp_path: Path, eventually: Eventually
) -> None:
    (tmp_path / "store").mkdir()
    ended, tokens = threading.Event(), WorkerTokens(rig.database, actor="user:root")
    memory = []
    # The rig's clock stands still: no lease runs out, so what is lost stays lost.
    with server_process(tmp_path, rig.url, (tmp_path / "store").as_uri()) as server:
        workers = [
            LightWorker(server.url, tokens.create(f"w{n}")[1], n % 2 == 0, ended)
            for n in range(WORKERS)
        ]
        with at_work(workers, ended):
            for part in range(1, PARTS + 1):
                submit(rig, part)
                eventually(partial(have_passed, workers, part * JOBS // PARTS))
                memory.append(server.memory_bytes)
    counted = Counter(job for worker in workers for job in worker.ran)
    assert (len(counted), set(counted.values())) == (JOBS, {1})
    assert [worker.refused for worker in workers] == [[]] * WORKERS
    assert (rig.count("attempt"), rig.count("outcome"), rig.count("lease")) == (JOBS, JOBS, 0)
    assert {row["status"] for row in rig.registry.workers()} == {"offline"}
    assert max(memory) - memory[0] < GROWTH_BYTES, [size // MEBIBYTE for size in memory]


def submit(rig: Rig, part: int) -> None:
    """Submit a part of the jobs: many at once, and single ones for queues not seen before."""
    for number in range(10):
        rig.submit_many(JOBS // PARTS // 10 - 5)
        for _ in range(5):
            rig.submit(queue=f"q{part}-{number}")


def have_passed(workers: list[LightWorker], jobs: int) -> bool:
    return sum(len(worker.ran) for worker in workers) >= jobs
