"""A replica takes over: although it started long ago, no job is lost."""

from __future__ import annotations

import shutil
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from chaos.parts.postgres_pair import Pair, binaries, postgres_pair
from forge_client.backend import CheckStanding
from forge_client.direct.checks import database_checks
from forge_schema.database.migrate import upgrade
from forge_schema.database.pool import Database
from forge_schema.model.spec import JobSpec
from forge_schema.model.states import Standing, WorkerStatus
from forge_schema.model.worker import Capacity, Machine
from forge_schema.queue.lanes import Lanes
from forge_schema.queue.queue import Queue
from forge_schema.queue.registry import Registry
from forge_schema.read.jobs import Jobs
from forge_schema.sweeper.tick import Tick
from support.database.postgres import DEBIAN, DEBIANS
from support.services import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.waiting import Eventually

TTL = timedelta(seconds=4)
EVERY = timedelta(seconds=0.1)
ROOM = Capacity(4, 1 << 20, 1 << 30)
OVER = "SELECT count(*) FROM lease WHERE expires_at < forge_now()"
OLD = "SELECT ticked_at > pg_postmaster_start_time() FROM sweeper"


@pytest.fixture
def pair() -> Iterator[Pair]:
    require(DEBIAN.is_dir(), DEBIANS)
    require((binaries() / "pg_basebackup").exists(), "pg_basebackup beside the server")
    # As for the other servers: closed to nobody, and with a short path.
    folder = Path(tempfile.mkdtemp(prefix="forge-pair-"))
    folder.chmod(0o755)
    try:
        with postgres_pair(folder / "pair") as made:
            upgrade(made.primary.url)
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_leases_that_ran_out_at_a_failover_may_still_be_renewed(
    pair: Pair, eventually: Eventually
) -> None:
    boot = uuid4()
    with Database(pair.primary.url) as before:
        queue = Queue(before, actor="user:ann", ttl=TTL)
        queue.submit([JobSpec(name="j", owner="ann", command=["true"])] * 2)
        worker = Registry(before, actor="user:ann").register(
            "w", Machine(boot, 4, 1 << 20, 1 << 30)
        )
        kept, gone = queue.claim(Lanes(before, worker), ROOM, count=2)
        Tick(queue, every=EVERY).run()
    (standby,) = database_checks(pair.standby.url)
    assert standby.standing is CheckStanding.FAIL
    assert "takes no writes: it is a standby" in standby.detail
    pair.fail_over()
    assert pair.primary.execute(OLD, "forge") == [(True,)]
    eventually(lambda: pair.primary.execute(OVER, "forge") == [(2,)])
    with Database(pair.primary.url) as after:
        queue = Queue(after, actor="user:ann", ttl=TTL)
        tick = Tick(queue, every=EVERY)
        assert tick.run().requeued == 0
        # The standby had been given numbers ahead: those in between are not given out.
        (late,) = queue.submit([JobSpec(name="late", owner="ann", command=["true"])])
        assert late > max(kept.fence.job_id, gone.fence.job_id) + 1
        renewed = queue.renew(worker, boot, [kept.fence], WorkerStatus.BUSY)
        assert renewed.standings == {kept.fence: Standing.OK}
        assert tick.run().requeued == 0

        def ticked() -> bool:
            queue.renew(worker, boot, [kept.fence], WorkerStatus.BUSY)
            return tick.run().requeued == 1

        eventually(ticked)
        states = [Jobs(after).job(grant.fence.job_id)["state"] for grant in (kept, gone)]
        (again,) = queue.claim(Lanes(after, worker), ROOM)
        assert again.fence.token > max(kept.fence.token, gone.fence.token) + 1
    assert states == ["running", "ready"]
