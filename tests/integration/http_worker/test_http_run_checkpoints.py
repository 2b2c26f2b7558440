"""Checkpoints of several ranks over HTTP: what each may read, and versions that know less."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from forge_schema.http_client import tls_context
from forge_schema.model.lease import End
from forge_schema.model.states import Reason
from forge_schema.storage import KeyInvalid
from forge_worker.job_io.checkpoints import CheckpointSync
from forge_worker.queue.http.gateway import HttpGateway
from forge_worker.queue.http.store import HttpStore
from support.gangs.ranks import LIMIT_MB, Rank
from support.gangs.runs import Run, formed, gang
from support.http.api import opened
from support.http.http_worker import machine, session
from support.workers.attempts import attempt_of, some_grant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forge_worker.attempt import LiveAttempt
    from support.queue.rig import Rig, Worker


@dataclass
class Afar:
    """Two workers over HTTP that run nothing."""

    rig: Rig
    root: Path
    workers: list[int]
    gateways: list[HttpGateway]
    stores: list[HttpStore]

    def begin(self, job: int) -> tuple[Run, list[Rank]]:
        """Form a run of both."""
        members = [SimpleNamespace(id=one) for one in self.workers]
        run = formed(self.rig, job, cast("list[Worker]", members))
        ranks = [self.rank(run, rank) for rank in range(len(members))]
        for rank, one in enumerate(ranks):
            self.gateways[rank].gather(one.attempt.fence, 1, {})
        return run, ranks

    def rank(self, run: Run, rank: int) -> Rank:
        fence = run.fences[rank]
        row = self.rig.row("SELECT attempt, nodes FROM lease WHERE token = %s", fence.token)
        grant = replace(some_grant(run.job_id, fence.token), nonce=fence.nonce, rank=rank, **row)
        attempt = attempt_of(grant, self.root / fence.mark)
        store, gateway = self.stores[rank].of(attempt), self.gateways[rank]
        return Rank(attempt, CheckpointSync(attempt, store, gateway, LIMIT_MB))

    def again(self, run: Run) -> list[Rank]:
        """Have the run end, and form the next one."""
        for fence, reason in zip(run.fences, (Reason.PREEMPTED, Reason.RUN_ENDED), strict=True):
            self.rig.queue.finish([End(fence, reason)])
        return self.begin(run.job_id)[1]

    def get(self, attempt: LiveAttempt, key: str) -> bytes:
        return self.stores[attempt.grant.rank].of(attempt).get(key)


@pytest.fixture
def afar(rig: Rig, tmp_path: Path) -> Iterator[Afar]:
    (tmp_path / "store").mkdir()
    made = Afar(rig, tmp_path, [], [], [])
    with ExitStack() as held:
        api = held.enter_context(opened(rig, tmp_path / "store"))
        for name in ("m0", "m1"):
            line = held.enter_context(session([api.url], api.workers.create(name)[1]))
            made.gateways.append(HttpGateway(line))
            made.workers.append(made.gateways[-1].register(machine()).worker_id)
            made.stores.append(HttpStore(line, tls_context()))
            held.callback(made.stores[-1].close)
        yield made


def store(ranks: list[Rank], content: str) -> None:
    for number, one in enumerate(ranks):
        one.store(**{f"shard-{number}": content})


def test_each_rank_is_restored_with_the_files_of_all(afar: Afar) -> None:
    run, ranks = afar.begin(gang(afar.rig, 2))
    store(ranks, "1")
    ranks[0].store(**{"shard-0": "2"})
    ranks[1].commit(5)
    ranks[1].end()
    assert afar.rig.row("SELECT step FROM checkpoint WHERE step IS NOT NULL")["step"] == 5
    for one in afar.again(run):
        one.sync.restore()
        assert one.files == {"shard-0": "2", "shard-1": "1"}


def test_a_job_that_starts_from_a_runs_checkpoint_reads_all_its_parts_and_no_others(
    afar: Afar,
) -> None:
    _, ranks = afar.begin(gang(afar.rig, 2))
    for content in ("1", "2", "3"):
        store(ranks, content)
    source = ranks[0].attempt.fence.job_id
    asked = {"job_id": source, "attempt": 1, "number": 1}
    child = gang(afar.rig, 2, from_checkpoint=asked)
    stranger = gang(afar.rig, 2)
    keys = {row["number"]: row for row in afar.rig.records.restorable(source)}
    parts = {number: [row["companions"][0]["key"], row["key"]] for number, row in keys.items()}
    _, heirs = afar.begin(child)
    for one in heirs:
        one.sync.restore()
        assert one.files == {"shard-0": "2", "shard-1": "2"}
        for key in parts[1]:
            assert afar.get(one.attempt, key)
        for key in (*parts[0], *parts[2]):
            with pytest.raises(KeyInvalid):
                afar.get(one.attempt, key)
    _, others = afar.begin(stranger)
    for one in others:
        for key in parts[1]:
            with pytest.raises(KeyInvalid):
                afar.get(one.attempt, key)


def test_a_checkpoint_is_that_of_rank_0_with_companions(afar: Afar) -> None:
    _, ranks = afar.begin(gang(afar.rig, 2))
    store(ranks, "1")
    job = ranks[0].attempt.fence.job_id
    (row,) = afar.gateways[1].restorable(job)
    assert [one["rank"] for one in row.pop("companions")] == [1]
    known = {"job_id", "key", "attempt", "number", "files", "bytes", "passed_over"}
    assert row.keys() == known
    manifest = json.loads(afar.get(ranks[0].attempt, row["key"]))
    assert [one["path"] for one in manifest["files"]] == ["shard-0"]
