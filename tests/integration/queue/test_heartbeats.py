"""Heartbeats: what they write, beside others' changes and on a clock that jumps."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING

import psycopg
import pytest
from forge_schema.model.states import Standing, WorkerStatus
from forge_schema.queue.queue import WorkerUnknown

if TYPE_CHECKING:
    from forge_schema.model.lease import Grant
    from support.queue.rig import Rig, Worker

POSITION = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint AS bytes"


def test_a_clock_ahead_for_a_while_lengthens_no_lease(rig: Rig) -> None:
    rig.submit_many(2)
    worker = rig.worker()
    renewed = worker.claim_one()
    rig.clock.advance(3600)
    claimed = worker.claim_one()
    worker.renew(renewed)
    rig.clock.advance(-3590)
    assert set(worker.renew(renewed, claimed).standings.values()) == {Standing.OK}
    ends = {row["expires_at"] for row in rig.rows("SELECT expires_at FROM lease")}
    assert ends == {rig.clock.now + rig.queue.ttl}
    rig.expire()
    assert rig.tick.run().requeued == 2


def test_a_lease_claimed_while_the_clock_was_ahead_lasts_no_longer(rig: Rig) -> None:
    rig.submit()
    worker = rig.worker()
    rig.clock.advance(3600)
    grant = worker.claim_one()
    rig.clock.advance(-3600)
    worker.renew(grant)
    rig.clock.advance(1)
    rig.finish(grant)
    assert rig.row("SELECT finished_at - claimed_at AS took FROM attempt")["took"] == timedelta(
        seconds=1
    )


def test_a_heartbeat_writes_little(rig: Rig) -> None:
    """A worker of eight GPUs; full pages of a checkpoint are off in the tests' servers."""
    rig.submit_many(8)
    worker = rig.worker(gpus=[gpu(n) for n in range(8)])
    grants = worker.claim(count=8)
    _written(rig, worker, grants)
    assert median(_written(rig, worker, []) for _ in range(15)) < 250
    assert median(_written(rig, worker, grants[:1]) for _ in range(15)) < 300
    assert median(_written(rig, worker, grants) for _ in range(15)) < 1100


def test_a_condition_is_written_every_two_minutes_or_when_it_says_something(rig: Rig) -> None:
    worker = rig.worker()
    first, second = ({"cpu_percent": n, "constrained": ""} for n in (1.0, 2.0))
    assert _told(rig, worker, first) == first
    rig.clock.advance(60)
    assert _told(rig, worker, second) == first
    assert _told(rig, worker, {**second, "constrained": "hot"}) == {**second, "constrained": "hot"}
    assert _told(rig, worker, first) == first
    rig.clock.advance(60)
    assert _told(rig, worker, second) == second


def test_a_worker_marked_offline_meanwhile_is_heard_and_that_is_told(rig: Rig) -> None:
    worker = rig.worker()
    worker.renew()
    with psycopg.connect(rig.url) as sweeper, ThreadPoolExecutor(1) as threads:
        sweeper.execute("UPDATE worker SET status = 'offline'")
        renewal = threads.submit(worker.renew)
        rig.wait_until_blocked()
        sweeper.commit()
        assert renewal.result(timeout=120).standings == {}
    assert rig.row("SELECT status FROM worker")["status"] == "idle"
    last = rig.row(
        "SELECT detail FROM event WHERE action = 'status_changed' ORDER BY id DESC LIMIT 1"
    )
    assert last["detail"] == {"from": "offline", "to": "idle"}


def test_an_older_boot_is_not_heard_while_a_newer_one_registers(rig: Rig) -> None:
    worker = rig.worker()
    worker.renew()
    with psycopg.connect(rig.url) as newer, ThreadPoolExecutor(1) as threads:
        newer.execute("UPDATE worker SET boot_id = gen_random_uuid()")
        renewal = threads.submit(worker.renew)
        rig.wait_until_blocked()
        newer.commit()
        with pytest.raises(WorkerUnknown):
            renewal.result(timeout=120)


def gpu(n: int) -> dict[str, object]:
    """Return one of a machine's GPUs."""
    return {"uuid": f"GPU-{n:032x}", "name": "NVIDIA H100 80GB HBM3", "vram_mb": 81_559}


def _told(rig: Rig, worker: Worker, condition: dict[str, object]) -> dict[str, object]:
    rig.queue.renew(worker.id, worker.machine.boot_id, [], WorkerStatus.IDLE, condition)
    found: dict[str, object] = rig.row("SELECT condition FROM worker")["condition"]
    return found


def _written(rig: Rig, worker: Worker, grants: list[Grant]) -> int:
    """Return the bytes of WAL that a heartbeat writes."""
    rig.clock.advance(1)
    before = rig.row(POSITION)["bytes"]
    used = rig.clock.now.second * 1_000
    looks = {f"GPU-{n:032x}": {"memory_mb": used, "power_w": used / 200} for n in range(8)}
    condition = {"cpu_percent": used / 800, "gpus": looks, "constrained": ""}
    fences = [grant.fence for grant in grants]
    rig.queue.renew(worker.id, worker.machine.boot_id, fences, WorkerStatus.BUSY, condition)
    written: int = rig.row(POSITION)["bytes"] - before
    return written
