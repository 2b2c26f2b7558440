"""A thousand idle workers behind one server: what a submit costs, counted in statements."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import pytest
from forge_functions.auth.worker import WorkerCaller
from forge_functions.routes.workers import long_claim
from forge_functions.routes.workers.long_claim import LongClaim
from forge_schema.access import tokens
from forge_schema.access.tokens import TokenKind
from forge_schema.database.pool import Database
from forge_schema.model.states import WorkerKind
from forge_schema.model.worker import Capacity
from forge_schema.protocol.messages import Claim
from support.http.api import opened
from support.http.http_worker import machine
from support.waiting import eventually as wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fastapi import Request
    from forge_schema.protocol.answers import Claimed
    from support.http.api import Api
    from support.queue.rig import Rig

WORKERS = 1000
WAIT_S = 60.0
# The last of a round: once it runs, the hub has passed on all hints before. Its worker has no room
# for the other jobs.
MARK: dict[str, Any] = {"labels": {"zone": "mark"}, "cpus": 0.5}


@pytest.fixture
def api(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setattr(long_claim, "LOOK_S", 3600)
    with opened(rig, tmp_path / "store", long_poll_s=WAIT_S) as made:
        yield made


class Caller:
    """A caller that stays."""

    async def receive(self) -> dict[str, str]:
        await asyncio.Event().wait()
        return {}


@dataclass
class Crowd:
    """Workers that wait for jobs, and the statements that the server runs for them."""

    api: Api
    ran: Counter[object]
    claims: list[asyncio.Task[Claimed]] = field(default_factory=list)

    async def joined(
        self,
        name: str,
        cpus: float = 1,
        **changes: Any,  # noqa: ANN401  fields of Machine
    ) -> int:
        """Have one more worker with some free CPUs claim, and wait; return its id."""
        worker_id, text = self.api.workers.create(name)
        own = machine(**changes)
        self.api.rig.registry.register_known(worker_id, own)
        token = tokens.parse(text, TokenKind.WORKER)
        caller = WorkerCaller(worker_id, name, WorkerKind.PERSISTENT, own.boot_id, None, token)
        free = Capacity(cpus, 1 << 20, 1 << 20)
        claim = Claim(boot_id=own.boot_id, free=free, wait_s=WAIT_S, nonce=uuid4())
        waiting = LongClaim(self.api.services, caller, claim)
        self.claims.append(asyncio.create_task(waiting.run(cast("Request", Caller()))))
        return worker_id

    async def settled(self) -> None:
        """Wait until all sleep that got no job."""
        await asyncio.to_thread(wait_until, self._all_sleep)

    def _all_sleep(self) -> bool:
        waiting = [claim for claim in self.claims if not claim.done()]
        return self.api.services.hub.waiting == len(waiting)

    async def submitted(
        self,
        count: int,
        **changes: Any,  # noqa: ANN401  fields of a job
    ) -> Counter[object]:
        """Submit jobs, then the mark; return the statements that the jobs cost, by worker."""
        marked = await self.joined(f"mark {uuid4()}", **MARK)
        await self.settled()
        self.ran.clear()
        await asyncio.to_thread(self.api.rig.submit_many, count, **changes)
        await asyncio.to_thread(self.api.rig.submit, **MARK)
        await self.claims[-1]
        await self.settled()
        del self.ran[marked]
        return Counter(self.ran)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, rig: Rig) -> Counter[object]:
    """Count the server's statements by the worker that each is for."""
    counted: Counter[object] = Counter()
    run = Database.rows

    def rows(self: Database, name: str, /, **params: Any) -> Any:  # noqa: ANN401  as the original
        # Lanes are read every two seconds for all workers, and who serves a shape once a minute.
        if self is not rig.database and name not in {"match", "serves"}:
            counted[params.get("worker_id", params.get("id"))] += 1
        return run(self, name, **params)

    monkeypatch.setattr(Database, "rows", rows)
    return counted


def test_a_submit_costs_three_statements_a_job_however_many_workers_are_idle(
    api: Api, ran: Counter[object]
) -> None:
    async def crowded() -> dict[str, Counter[object]]:
        crowd = Crowd(api, ran)
        for n in range(WORKERS):
            await crowd.joined(f"w{n}")
            if n % 50 == 0:
                await crowd.settled()
        costs = {}
        for what, count, needs in (
            ("none can run", 3, {"gpus": 4}),
            ("one job", 1, {}),
            ("twenty jobs", 20, {}),
        ):
            costs[what] = await crowd.submitted(count, **needs)
        assert sum(claim.done() for claim in crowd.claims) == 21 + 3
        for claim in crowd.claims:
            claim.cancel()
        await asyncio.gather(*crowd.claims, return_exceptions=True)
        return costs

    costs = asyncio.run(crowded())
    assert not costs["none can run"]
    assert 0 < costs["one job"].total() <= 3
    # Claims at the same moment may find each other's jobs locked, and look past them.
    assert len(costs["twenty jobs"]) == 20
