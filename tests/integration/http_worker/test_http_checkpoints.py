"""Checkpoints of workers that have nothing but a token: restored, passed over, thinned, shared."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.http_client import tls_context
from forge_schema.storage import KeyInvalid, Store, open_store
from forge_schema.storage.file_store import FileStore
from forge_schema.storage.manifest import CHUNK_BYTES
from forge_worker.job_io.artifacts import ArtifactKeeper
from forge_worker.job_io.checkpoints import CheckpointSync
from forge_worker.queue.http.gateway import HttpGateway
from forge_worker.queue.http.session import Session
from forge_worker.queue.http.store import HttpStore
from support.http.api import opened
from support.http.http_worker import PLENTY, machine, session
from support.store.storage import moto_server, new_bucket, use_credentials
from support.workers.attempts import attempt_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forge_worker.attempt import LiveAttempt
    from support.queue.rig import Rig

LIMIT_MB = 10


@dataclass
class Afar:
    """A worker over HTTP that runs nothing, and the store behind its server."""

    rig: Rig
    gateway: HttpGateway
    objects: HttpStore
    store: Store
    root: Path

    def attempt(self) -> LiveAttempt:
        self.gateway.new_work()
        (grant,) = self.gateway.finish_and_claim([], PLENTY, 1)[1]
        return attempt_of(grant, self.root / str(grant.fence.token))

    def again(self, attempt: LiveAttempt) -> LiveAttempt:
        self.rig.queue.release(attempt.fence)
        following = self.attempt()
        assert following.fence.job_id == attempt.fence.job_id
        return following

    def sync(self, attempt: LiveAttempt, chunk_bytes: int = CHUNK_BYTES) -> CheckpointSync:
        objects = self.objects.of(attempt)
        return CheckpointSync(attempt, objects, self.gateway, LIMIT_MB, chunk_bytes)

    def keys(self, attempt: LiveAttempt) -> list[str]:
        return [one.key for one in self.store.list(f"jobs/{attempt.fence.job_id}/")]


@pytest.fixture(params=["file", "s3"])
def afar(
    request: pytest.FixtureRequest, rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Afar]:
    (tmp_path / "store").mkdir()
    with ExitStack() as held:
        api = held.enter_context(opened(rig, tmp_path / "store"))
        if request.param == "s3":
            use_credentials(monkeypatch)
            bucket = held.enter_context(new_bucket(held.enter_context(moto_server())))
            api.services.settings.store_url = bucket.url()
        made = held.enter_context(session([api.url], api.workers.create("w")[1]))
        gateway = HttpGateway(made)
        gateway.register(machine())
        objects = HttpStore(made, tls_context())
        held.callback(objects.close)
        store = open_store(api.services.settings.store_url)
        yield Afar(rig, gateway, objects, store, tmp_path)


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the worker ask for ten objects at once, so that few are many."""
    monkeypatch.setattr("forge_worker.queue.http.store.OBJECTS", 10)
    monkeypatch.setattr("forge_worker.transfers.OBJECTS", 10)


def model(attempt: LiveAttempt) -> str:
    return (attempt.folders.checkpoint / "model").read_text()


def test_a_worker_over_http_thins_out_restores_and_starts_from_another_job(afar: Afar) -> None:
    source = afar.rig.submit(keep_checkpoints=1)
    first = afar.attempt()
    sync = afar.sync(first)
    for content in ("one", "two", "three", "four"):
        (first.folders.checkpoint / "model").write_text(content)
        (first.folders.checkpoint / "same").write_text("same")
        sync.step()
        sync.thinner.step()
    assert [row["number"] for row in afar.rig.jobs.checkpoints(source)] == [3, 0]
    # Two manifests and their files, one of which both have.
    assert len(afar.keys(first)) == 5

    newest = afar.gateway.restorable(source)[0]["key"]
    oldest = afar.gateway.restorable(source)[1]["key"]
    child = afar.rig.submit(from_checkpoint={"job_id": source}, priority=1)
    other = afar.attempt()
    assert other.fence.job_id == child
    afar.sync(other).restore()
    assert model(other) == "four"
    # Only that one: neither another manifest nor anything else of that job.
    objects = afar.objects.of(other)
    objects.get(newest)
    for key in (oldest, oldest.replace("checkpoints/000000.json", "artifacts/x")):
        with pytest.raises(KeyInvalid):
            objects.get(key)
    stranger = afar.rig.submit(priority=1)
    third = afar.attempt()
    assert third.fence.job_id == stranger
    for key in afar.keys(first):
        with pytest.raises(KeyInvalid):
            afar.objects.of(third).get(key)

    afar.store.put(newest, b"damaged")
    following = afar.again(first)
    afar.sync(following).restore()
    assert model(following) == "one"
    assert "1.3 was skipped" in following.folders.log.read_text()
    # An attempt that lost its lease thins nothing.
    afar.gateway.thin_checkpoints(first.fence, 1, everywhere=True)
    assert len(afar.keys(first)) == 5


def test_chunks_over_http_are_thinned_out_restored_and_read_by_another_job(afar: Afar) -> None:
    source = afar.rig.submit(keep_checkpoints=1)
    first = afar.attempt()
    content = bytearray(os.urandom(30 * 1000))
    sync = afar.sync(first, 1000)
    for number in range(4):
        content[number * 1000] ^= 1
        (first.folders.checkpoint / "model").write_bytes(content)
        sync.step()
        sync.thinner.step()
    assert [row["number"] for row in afar.rig.jobs.checkpoints(source)] == [3, 0]
    # Two manifests, 30 chunks, and three that differ.
    assert len(afar.keys(first)) == 35
    child = afar.rig.submit(from_checkpoint={"job_id": source}, priority=1)
    other = afar.attempt()
    assert other.fence.job_id == child
    following = afar.again(first)
    for attempt in (other, following):
        afar.sync(attempt).restore()
        assert (attempt.folders.checkpoint / "model").read_bytes() == content


def test_a_server_of_the_version_before_signs_one_object_at_a_time(
    afar: Afar, monkeypatch: pytest.MonkeyPatch
) -> None:
    post, asked = Session.post, list[str]()

    def of_before(self: Session, path: str, *words: Any, **more: Any) -> Any:  # noqa: ANN401  passed on
        asked.append(path.rpartition("/objects")[2])
        for later in ("/objects/batch", "/objects/small"):
            path = path.replace(later, "/no/such/path")
        return post(self, path, *words, **more)

    afar.rig.submit()
    first = afar.attempt()
    for number in range(9):
        (first.folders.checkpoint / str(number)).write_text(str(number))
    afar.sync(first).step()
    with monkeypatch.context() as before:
        before.setattr(Session, "post", of_before)
        (first.folders.checkpoint / "8").write_text("other")
        (first.folders.checkpoint / "9").write_text("new")
        afar.sync(first).step()
        following = afar.again(first)
        afar.sync(following).restore()
    assert asked.count("/batch") == 2
    names = sorted(path.name for path in following.folders.checkpoint.iterdir())
    assert names == list("0123456789")


def test_many_files_take_few_requests(afar: Afar, monkeypatch: pytest.MonkeyPatch) -> None:
    post, asked = Session.post, list[str]()

    def counted(self: Session, path: str, *words: Any, **more: Any) -> Any:  # noqa: ANN401  passed on
        asked.append(path)
        return post(self, path, *words, **more)

    monkeypatch.setattr(Session, "post", counted)
    job = afar.rig.submit()
    attempt = afar.attempt()
    for number in range(25):
        (attempt.folders.output / str(number)).write_text(str(number))
    objects = afar.objects.of(attempt)
    assert ArtifactKeeper(attempt, objects, afar.gateway, LIMIT_MB).store() == 25
    # Ten at a time: their content to a folder's server, their URLs from that of S3.
    step = "small" if isinstance(afar.store, FileStore) else "batch"
    about = [path.rpartition("/objects/")[2] for path in asked if "/objects" in path]
    assert about == [step] * 3
    found = afar.rig.jobs.artifacts(job)
    assert {afar.store.get(one["key"]).decode() for one in found} == set(map(str, range(25)))
