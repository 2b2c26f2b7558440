"""Artifacts in chunks, here of 1000 bytes: stored by a worker over HTTP, read in every way."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from forge_client import ClientError
from forge_client.direct.backend import DirectBackend
from forge_client.downloads import download_all
from forge_client.http import Server
from forge_client.http.backend import HttpBackend
from forge_client.settings import QueueConnection
from forge_schema.http_client import tls_context
from forge_schema.model.attempt_records import ArtifactRecord, StoredArtifacts
from forge_schema.model.states import Role
from forge_schema.storage import ObjectTooLarge, Store, open_store
from forge_worker.attempt import LiveAttempt
from forge_worker.job_io.artifacts import ArtifactKeeper
from forge_worker.queue.http.gateway import HttpGateway
from forge_worker.queue.http.session import ServerRefused
from forge_worker.queue.http.store import HttpObjects, HttpStore
from pydantic import ValidationError
from support.client.reaching import key
from support.http.api import opened
from support.http.guest import Guest
from support.http.http_worker import PLENTY, machine, session
from support.store.storage import new_bucket, use_credentials
from support.workers.attempts import attempt_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.http.api import Api
    from support.queue.rig import Rig

LIMIT_MB = 10
CHUNK = 1000


@dataclass
class Shop:
    """A job's attempt on a worker over HTTP, and the two ways in which a client reads."""

    api: Api
    gateway: HttpGateway
    attempt: LiveAttempt
    objects: HttpStore
    store: Store
    over_http: HttpBackend
    direct: DirectBackend

    def keeper(self) -> ArtifactKeeper:
        objects = self.objects.of(self.attempt)
        return ArtifactKeeper(self.attempt, objects, self.gateway, LIMIT_MB, CHUNK)

    def keep(self, **files: bytes) -> ArtifactKeeper:
        """Store files as artifacts."""
        for name, content in files.items():
            (self.attempt.folders.output / name).write_bytes(content)
        keeper = self.keeper()
        keeper.store()
        return keeper

    @property
    def job_id(self) -> int:
        return self.attempt.fence.job_id

    def chunks(self) -> list[str]:
        stored = self.store.list(f"jobs/{self.job_id}/")
        return [one.key for one in stored if "/chunks/" in one.key]


@pytest.fixture(params=["file", "s3"])
def shop(
    request: pytest.FixtureRequest, rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    (tmp_path / "store").mkdir()
    with ExitStack() as held:
        api = held.enter_context(opened(rig, tmp_path / "store"))
        if request.param == "s3":
            use_credentials(monkeypatch)
            bucket = held.enter_context(new_bucket(request.getfixturevalue("moto")))
            api.services.settings.store_url = bucket.url()
        made = held.enter_context(session([api.url], api.workers.create("w")[1]))
        gateway, objects = HttpGateway(made), HttpStore(made, tls_context())
        held.callback(objects.close)
        gateway.register(machine())
        rig.submit()
        (grant,) = gateway.finish_and_claim([], PLENTY, 1)[1]
        store_url = api.services.settings.store_url
        connection = QueueConnection(database_url=rig.url, store_url=store_url)
        yield Shop(
            api,
            gateway,
            attempt_of(grant, tmp_path / "attempt"),
            objects,
            open_store(store_url),
            held.enter_context(HttpBackend(Server(api.url, key(rig)))),
            held.enter_context(DirectBackend(connection, owner="ann")),
        )


def test_a_large_artifact_is_put_together_by_every_reader(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # More chunks than two answers list.
    monkeypatch.setattr("forge_schema.service.service.CHUNKS", 10)
    model, small = os.urandom(23 * CHUNK + 7), b"x" * CHUNK
    shop.keep(**{"model": model, "small": small, "a ü%.bin": model[:2500]})
    for backend in (shop.over_http, shop.direct):
        found = backend.artifacts(shop.job_id)
        assert [file.bytes for file in found] == [2500, len(model), CHUNK]
        moved: list[int] = []
        folder = tmp_path / type(backend).__name__
        download_all(backend, found, folder, moved.append)
        assert (folder / "model").read_bytes() == model
        assert (folder / "small").read_bytes() == small
        assert (folder / "a ü%.bin").read_bytes() == model[:2500]
        assert sum(moved) == sum(file.bytes for file in found)
    # A browser follows the URL.
    for file in shop.over_http.artifacts(shop.job_id):
        assert httpx.get(file.url).content == (folder / file.path).read_bytes()


def test_a_large_artifact_is_whole_on_a_disk_that_writes_little_at_a_time(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.keep(model=os.urandom(5 * CHUNK))
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: pwrite(file, data[:300], at))
    for backend in (shop.over_http, shop.direct):
        (path,) = download_all(backend, backend.artifacts(shop.job_id), tmp_path / "to")
        assert path.read_bytes() == (shop.attempt.folders.output / "model").read_bytes()
        path.unlink()


def test_artifacts_whose_names_no_key_can_hold_are_kept(shop: Shop, tmp_path: Path) -> None:
    sizes = {b"\xff.bin": 10, b"new\nline": 3 * CHUNK, b"a\\b": 20}
    sizes[b"/".join([b"z" * 200] * 5)] = 4 * CHUNK
    for name, size in sizes.items():
        path = shop.attempt.folders.output / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
    shop.keep()
    found = shop.over_http.artifacts(shop.job_id)
    assert sorted(file.bytes for file in found) == sorted(sizes.values())
    for number, file in enumerate(found):
        shop.over_http.download(file, tmp_path / str(number))
        assert (tmp_path / str(number)).stat().st_size == file.bytes


def test_links_and_times_of_artifacts_are_kept(shop: Shop, tmp_path: Path) -> None:
    output = shop.attempt.folders.output
    (output / "model.bin").symlink_to("model-2.bin")
    (output / "out").symlink_to("/etc/passwd")
    os.mkfifo(output / "pipe")
    (output / "model-2.bin").write_bytes(b"two")
    os.utime(output / "model-2.bin", ns=(0, 1_577_836_800_123_456_789))
    shop.keep(large=os.urandom(3 * CHUNK))
    for backend in (shop.over_http, shop.direct):
        found = backend.artifacts(shop.job_id)
        assert [(one.path, one.target) for one in found] == [
            *(("large", None), ("model-2.bin", None)),
            ("model.bin", "model-2.bin"),
        ]
        folder = tmp_path / type(backend).__name__
        download_all(backend, found, folder)
        assert (folder / "model.bin").readlink().name == "model-2.bin"
        assert (folder / "model-2.bin").stat().st_mtime_ns == 1_577_836_800_123_456_000
    said = "'out' is a link to '/etc/passwd', which leads out of its folder"
    assert shop.attempt.folders.log.read_text().splitlines() == [
        f"forge: not stored in artifacts: {said}",
        "forge: not stored in artifacts: 'pipe' is a named pipe",
    ]


@pytest.mark.parametrize("path", ["model", "a\\b"])
def test_an_artifact_names_no_key_but_its_own(shop: Shop, path: str) -> None:
    names = ["other", "unnameable/other", f"unnameable/{'ab' * 32}/x"]
    names += [f"unnameable/{'ab' * 32}"] if path == "model" else []
    for name in names:
        lie = ArtifactRecord(path, shop.attempt.keys.artifact(name), 1, "ab" * 32)
        with pytest.raises(ServerRefused):
            shop.gateway.record(shop.attempt.fence, StoredArtifacts([lie]))


@pytest.mark.parametrize("path", ["/etc/x", "..", "../x", "a/../../x", "a//x", "./x", "a/."])
def test_a_name_that_leaves_its_folder_is_not_recorded(shop: Shop, path: str) -> None:
    key = shop.attempt.keys.artifact(f"unnameable/{'ab' * 32}")
    # The same model reads the message at the server.
    with pytest.raises(ValidationError, match="stay in its folder"):
        shop.gateway.record(
            shop.attempt.fence, StoredArtifacts([ArtifactRecord(path, key, 1, "ab" * 32)])
        )


def test_an_upload_of_artifacts_goes_on_where_an_agent_was_killed(shop: Shop) -> None:
    keeper = shop.keep(model=os.urandom(20 * CHUNK))
    assert len(shop.chunks()) == 20
    changed = shop.chunks()[0]
    shop.store.put(changed, b"not sent again")
    # The same again, and as the next agent.
    for following in (keeper, shop.keeper()):
        assert following.store() == 1
        assert shop.store.get(changed) == b"not sent again"


def test_an_artifact_that_a_proxy_refuses_is_left_out(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = HttpObjects.put

    def refuses(self: HttpObjects, key: str, data: bytes, **words: bool) -> bool:
        if data == b"x" * CHUNK:
            raise ObjectTooLarge("too large for the proxy")
        return put(self, key, data, **words)

    monkeypatch.setattr(HttpObjects, "put", refuses)
    monkeypatch.setattr(HttpObjects, "put_together", lambda *_: False)
    one, other = b"x" * CHUNK + b"one", b"x" * CHUNK + b"other"
    keeper = shop.keep(one=one, other=other, small=b"x" * CHUNK, good=b"y")
    assert [file.path for file in shop.direct.artifacts(shop.job_id)] == ["good"]
    assert len(keeper.refused) == 3


def _alter(shop: Shop, chunk: str) -> None:
    shop.store.put(chunk, b"x" * CHUNK)


def _shorten(shop: Shop, chunk: str) -> None:
    shop.store.put(chunk, b"x")


def _lose(shop: Shop, chunk: str) -> None:
    shop.store.delete(chunk)


@pytest.mark.parametrize("harm", [_alter, _shorten, _lose])
def test_a_damaged_chunk_leaves_no_file(shop: Shop, tmp_path: Path, harm: object) -> None:
    shop.keep(model=os.urandom(5 * CHUNK))
    assert callable(harm)
    harm(shop, shop.chunks()[2])
    for backend in (shop.over_http, shop.direct):
        with pytest.raises(ClientError) as caught:
            download_all(backend, backend.artifacts(shop.job_id), tmp_path / "to")
        assert caught.value.code in {"object_corrupt", "object_missing"}
        assert not (tmp_path / "to").exists()
        assert [path for path in tmp_path.glob("to.partial-*/**/*") if path.is_file()] == []
    (file,) = shop.over_http.artifacts(shop.job_id)
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(file.url, timeout=60)


def _of_another_job(entry: dict[str, Any], job_id: int) -> None:
    entry["chunks"][1] = f"jobs/{job_id + 1}/1-1-abc/chunks/{'ab' * 32}"


def _in_huge_chunks(entry: dict[str, Any], job_id: int) -> None:
    assert job_id
    entry |= {"chunks": entry["chunks"][:1], "size": 1 << 40, "chunk_bytes": 1 << 40}


@pytest.mark.parametrize("lie", [_of_another_job, _in_huge_chunks])
def test_a_list_that_no_worker_would_write_is_refused(
    shop: Shop, tmp_path: Path, lie: Callable[[dict[str, Any], int], None]
) -> None:
    shop.keep(model=os.urandom(5 * CHUNK))
    (file,) = shop.direct.artifacts(shop.job_id)
    told = json.loads(shop.store.get(file.key))
    lie(told["files"][0], shop.job_id)
    shop.store.put(file.key, json.dumps(told).encode())
    for backend in (shop.over_http, shop.direct):
        with pytest.raises(ClientError) as caught:
            backend.download(file.model_copy(update={"job_id": shop.job_id}), tmp_path / "model")
        assert caught.value.code == "checkpoint_unsound"
    (file,) = shop.over_http.artifacts(shop.job_id)
    assert httpx.get(file.url).status_code == 409


def test_a_server_that_is_billed_by_time_does_not_put_files_together(shop: Shop) -> None:
    shop.keep(model=os.urandom(5 * CHUNK))
    ann = Guest(shop.api).login("ann", Role.ADMIN)
    page = f"/jobs/{shop.job_id}/artifact?path=model"
    assert len(httpx.get(ann.http.get(page).headers["location"]).content) == 5 * CHUNK
    shop.api.services.settings.long_poll_s = 0
    refused = ann.http.get(page)
    assert refused.status_code == 409
    assert f"forge artifacts {shop.job_id} --to FOLDER" in refused.text
    (chunk, *_) = shop.over_http.artifact_chunks(shop.job_id, "model", after=-1)
    assert httpx.get(chunk.url).content == shop.store.get(chunk.key)


def test_a_url_of_chunks_is_for_one_file_and_for_a_while(shop: Shop) -> None:
    shop.keep(model=os.urandom(5 * CHUNK), other=os.urandom(5 * CHUNK))
    model, other = shop.over_http.artifacts(shop.job_id)
    assert httpx.get(model.url.replace("/model?", "/other?")).status_code == 403
    assert httpx.get(other.url.partition("?")[0]).status_code == 422
