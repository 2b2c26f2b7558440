"""Large projects in segments, here of 8 KiB: sent once, fetched once, and read by their owners."""

from __future__ import annotations

import hashlib
import os
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from forge_client import ClientError
from forge_client.direct.backend import DirectBackend
from forge_client.http import Server
from forge_client.http.backend import HttpBackend
from forge_client.project import listing, segments, submission
from forge_client.project.bundle import scan
from forge_client.project.listing import SETTLED_NS
from forge_client.project.segments import pack_segments
from forge_client.project.submission import Uploaded, upload
from forge_client.settings import QueueConnection
from forge_schema.access.api_keys import Keys
from forge_schema.http_client import tls_context
from forge_schema.model.states import Reason, Role
from forge_schema.model.stored import SegmentList
from forge_schema.storage import KeyInvalid, Store, keys, open_store
from forge_worker.prepare.bundle import BundleCache, BundleCorrupt
from forge_worker.queue.http.gateway import HttpGateway
from forge_worker.queue.http.store import HttpObjects, HttpStore
from support import trees
from support.http.api import SPEC, Api, Caller, opened, problem
from support.http.http_worker import PLENTY, machine, session
from support.store.storage import Proxy, answer, new_bucket, proxy, use_credentials
from support.store.verifying_proxy import Verifier
from support.waiting import eventually
from support.workers.attempts import attempt_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

    from forge_client.backend import Backend
    from forge_client.uploads import Bundle, Progress
    from support.queue.rig import Rig

SEGMENT = 32 << 10
SIGNED_AT_ONCE = 8
ROOMY = 1 << 30


@dataclass
class Shop:
    """A server, its store, and a proxy that objects pass through."""

    api: Api
    door: Proxy
    store: Store
    held: ExitStack
    root: Path

    def backend(self, owner: str = "ann") -> HttpBackend:
        token = Keys(self.api.rig.database, actor="user:root").create(owner, Role.SUBMITTER)[1]
        return self.held.enter_context(HttpBackend(Server(self.api.url, token)))

    def objects(self, name: str, job: dict[str, Any]) -> HttpObjects:
        """Return the objects of a job that a new worker runs."""
        made = self.held.enter_context(session([self.api.url], self.api.workers.create(name)[1]))
        gateway, store = HttpGateway(made), HttpStore(made, tls_context())
        self.held.callback(store.close)
        gateway.register(machine())
        self.api.key("ann").submit(**job)
        (grant,) = gateway.finish_and_claim([], PLENTY, 1)[1]
        return store.of(attempt_of(grant, self.root / name))

    def sent(self) -> list[str]:
        """Return the segments sent since the last call."""
        seen = [line.partition("?")[0] for line in self.door.seen if line.startswith("PUT ")]
        self.door.seen.clear()
        return [line[line.index(keys.SEGMENTS) :] for line in seen if keys.SEGMENTS in line]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", SEGMENT)
    monkeypatch.setattr(segments, "USUAL_BYTES", SEGMENT // 4)
    monkeypatch.setattr(submission, "SEGMENT_BYTES", SEGMENT)
    monkeypatch.setattr("forge_functions.routes.bundles.SEGMENTS", SIGNED_AT_ONCE)


@pytest.fixture(params=["file", "s3"])
def shop(
    request: pytest.FixtureRequest, rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    (tmp_path / "store").mkdir()
    with ExitStack() as held:
        url = (tmp_path / "store").as_uri()
        api = held.enter_context(opened(rig, tmp_path / "store"))
        if request.param == "s3":
            use_credentials(monkeypatch)
            door = held.enter_context(proxy(request.getfixturevalue("moto")))
            door.fault = Verifier(door.url, holders=True).fault
            url = held.enter_context(new_bucket(door.url)).url()
            api.services.settings.store_url = url
        else:
            door = held.enter_context(proxy(api.url))
            api.services.settings.public_url = door.url
        yield Shop(api, door, open_store(url), held, tmp_path)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    trees.write(tmp_path / "project", {f"src/{n}.py": os.urandom(1000) for n in range(90)})
    return tmp_path / "project"


def packed(project: Path) -> Bundle:
    out = project.parent / "packed"
    out.mkdir(exist_ok=True)
    return pack_segments(scan(project), out, limit_bytes=ROOMY)


def named(bundle: Bundle) -> list[str]:
    return [keys.segment(one.sha256) for one in bundle.segments]


def stored(bundle: Bundle) -> dict[str, Any]:
    return SegmentList(segments=list(bundle.segments)).model_dump()


def test_after_an_edit_only_what_changed_is_sent_and_fetched(shop: Shop, project: Path) -> None:
    with shop.backend() as backend:
        first = upload(backend, scan(project))
        assert sorted(shop.sent()) == sorted(named(first.bundle))
        assert first.sent == first.bundle.size > 90_000
        # More of them than the server signs URLs for at once.
        assert len(first.bundle.segments) > SIGNED_AT_ONCE
        again = upload(backend, scan(project))
        assert (again.bundle.digest, again.sent, shop.sent()) == (first.bundle.digest, 0, [])
        job = {"bundle_digest": first.bundle.digest}
        cache = BundleCache(shop.objects("w1", job), shop.root / "cache", ROOMY)
        cache.unpack(first.bundle.digest, shop.root / "one")
        assert trees.read(shop.root / "one") == trees.read(project)
        (project / "src/77.py").write_bytes(b"changed")
        changed = upload(backend, scan(project))
    assert 0 < changed.sent < 2 * SEGMENT
    assert len(shop.sent()) <= 3
    job = {"bundle_digest": changed.bundle.digest}
    cache = BundleCache(shop.objects("w2", job), shop.root / "cache", ROOMY)
    moved: list[int] = []
    cache.unpack(changed.bundle.digest, shop.root / "two", progress=moved.append)
    assert trees.read(shop.root / "two") == trees.read(project)
    listed = len(SegmentList(segments=list(changed.bundle.segments)).dumped())
    unpacked = sum(entry.size for entry in scan(project).files)
    assert sum(moved) - unpacked == changed.sent + listed


def test_direct_access_sends_the_same(rig: Rig, project: Path, tmp_path: Path) -> None:
    place = (tmp_path / "store").as_uri()
    with DirectBackend(QueueConnection(rig.url, place), owner="ann") as direct:
        first = upload(direct, scan(project))
        assert (first.sent, upload(direct, scan(project)).sent) == (first.bundle.size, 0)
        (project / "src/77.py").write_bytes(b"changed")
        changed = upload(direct, scan(project))
        assert 0 < changed.sent < 2 * SEGMENT
        direct.submit([{**SPEC, "owner": "ann", "bundle_digest": changed.bundle.digest}])
    cache = BundleCache(open_store(place), tmp_path / "cache", ROOMY)
    cache.unpack(changed.bundle.digest, tmp_path / "work")
    assert trees.read(tmp_path / "work") == trees.read(project)


def test_an_unchanged_project_is_packed_again_only_where_the_store_lost_it(
    rig: Rig, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_in_memory", lambda _folder: False)
    packing: list[str] = []

    def bar(what: str, _total: int) -> AbstractContextManager[Progress]:
        packing.append(what)
        return nullcontext(lambda _count: None)

    def submitted(backend: Backend) -> tuple[str, list[str]]:
        packing.clear()
        found = scan(project)
        later = replace(found, at_ns=found.at_ns + 2 * SETTLED_NS)
        return upload(backend, later, bar=bar).bundle.digest, list(packing)

    place = tmp_path / "store"
    with DirectBackend(QueueConnection(rig.url, place.as_uri()), owner="ann") as direct:
        digest, shown = submitted(direct)
        assert shown == ["packing", "uploading"]
        assert submitted(direct) == (digest, [])
        with pytest.raises(ClientError, match="more than the limit"):
            upload(direct, scan(project), limit=1000)
        store = open_store(place.as_uri())
        store.delete(next(iter(store.list(keys.SEGMENTS))).key)
        assert submitted(direct) == (digest, ["packing", "uploading"])


def refusing(door: Proxy, status: int, *, after: int, times: int = 1000) -> None:
    """Refuse segments, but not the first ones."""
    seen = [0]

    def fault(handler: BaseHTTPRequestHandler, _body: bytes) -> bool:
        if handler.command != "PUT" or keys.SEGMENTS not in handler.path:
            return False
        seen[0] += 1
        return after < seen[0] <= after + times and answer(handler, status)

    door.fault = fault


def test_an_interrupted_upload_goes_on_where_it_stopped(shop: Shop, project: Path) -> None:
    refusing(shop.door, 400, after=6)
    with shop.backend() as backend:
        with pytest.raises(ClientError) as caught:
            upload(backend, scan(project))
        assert caught.value.code == "store_refused"
        there = {found.key for found in shop.store.list(keys.SEGMENTS)}
        assert len(there) == 6
        shop.door.fault = None
        shop.sent()
        resumed = upload(backend, scan(project))
    sent = shop.sent()
    assert there.isdisjoint(sent)
    assert len(there) + len(sent) == len(resumed.bundle.segments)
    assert resumed.sent < resumed.bundle.size


def test_urls_that_expired_are_asked_for_anew(shop: Shop, project: Path) -> None:
    refusing(shop.door, 403, after=3, times=4)
    with shop.backend() as backend:
        done = upload(backend, scan(project))
        assert upload(backend, scan(project)).sent == 0
        (project / "src/77.py").write_bytes(b"changed")
        refusing(shop.door, 403, after=0)
        with pytest.raises(ClientError) as caught:
            upload(backend, scan(project))
    assert caught.value.code == "url_refused"
    assert shop.store.size(keys.bundle(done.bundle.digest)) is not None


def sent_by(shop: Shop, owner: str, project: Path) -> Uploaded:
    backend: Backend = shop.backend(owner)
    return upload(backend, scan(project))


def refused(who: Caller, digest: str) -> bool:
    answer = who.call("POST", "/api/v1/queue/submit", {"jobs": [{**SPEC, "bundle_digest": digest}]})
    return bool(problem(answer, 404, "not_uploaded"))


def test_segments_of_another_owner_are_as_good_as_absent(shop: Shop, project: Path) -> None:
    bundle = sent_by(shop, "ann", project).bundle
    bob = shop.api.key("bob")
    offer = bob.post("/api/v1/bundles/segments", stored(bundle))
    assert (offer["stored"], offer["missing_bytes"]) == (False, bundle.size)
    assert refused(bob, bundle.digest)
    # Whoever has them too sends them, and takes nothing from the first owner.
    assert sent_by(shop, "bob", project).sent == bundle.size
    assert bob.submit(bundle_digest=bundle.digest)
    assert sent_by(shop, "ann", project).sent == 0
    assert shop.api.key("ann").submit(bundle_digest=bundle.digest)


def test_what_a_worker_found_damaged_is_sent_again(shop: Shop, project: Path) -> None:
    bundle, rig = sent_by(shop, "ann", project).bundle, shop.api.rig
    key = keys.segment(bundle.segments[1].sha256)
    data = shop.store.get(key)
    shop.store.put(key, data[:-1] + bytes([data[-1] ^ 1]))
    job = shop.api.key("ann").submit(bundle_digest=bundle.digest)
    assert sent_by(shop, "ann", project).sent == 0
    with pytest.raises(BundleCorrupt) as found:
        BundleCache(shop.store, shop.root / "cache", ROOMY).unpack(bundle.digest, shop.root / "to")
    rig.clock.set(datetime.now(UTC))
    end(rig, job, Reason.BUNDLE_CORRUPT, str(found.value))
    assert sent_by(shop, "ann", project).sent == bundle.size
    assert shop.store.get(key) == data
    # S3 keeps whole seconds, so an upload right after the report may count as older.
    assert eventually(lambda: sent_by(shop, "ann", project).sent == 0)


def end(rig: Rig, job: int, reason: Reason, detail: str) -> None:
    """Have a worker end a job."""
    (grant,) = [one for one in rig.worker(f"of {job}").claim() if one.job_id == job]
    rig.finish(grant, reason, detail=detail)


@pytest.mark.parametrize("kind", ["bundles", "images"])
def test_having_the_list_gives_no_right_to_the_segments(
    shop: Shop, project: Path, kind: str
) -> None:
    bundle = sent_by(shop, "ann", project).bundle
    bob, listed = shop.api.key("bob"), shop.store.get(keys.bundle(bundle.digest))
    for digest in (bundle.digest, hashlib.sha256(listed).hexdigest()):
        offer = bob.post(f"/api/v1/{kind}", {"digest": digest, "bytes": len(listed)})
        httpx.put(offer["url"], headers=offer["headers"], content=listed, timeout=60)
    assert refused(bob, bundle.digest)


def test_an_admin_passes_a_large_project_on(shop: Shop, project: Path) -> None:
    bundle = sent_by(shop, "ann", project).bundle
    root, bob = shop.api.key("root", Role.ADMIN), shop.api.key("bob")
    assert root.submit(bundle_digest=bundle.digest, owner="bob")
    assert bob.submit(bundle_digest=bundle.digest)


def _altered(body: dict[str, Any]) -> None:
    body["segments"][3]["bytes"] -= 1


def _too_large(body: dict[str, Any]) -> None:
    body["segments"][3]["bytes"] = 1 << 40


def _no_digest(body: dict[str, Any]) -> None:
    body["segments"][3]["sha256"] = "../../x"


def _none(body: dict[str, Any]) -> None:
    body["segments"] = []


def _too_many(body: dict[str, Any]) -> None:
    body["segments"] *= 300


def test_a_segment_of_another_size_is_missing(shop: Shop, project: Path) -> None:
    body = stored(sent_by(shop, "ann", project).bundle)
    _altered(body)
    offer = shop.api.key("ann").post("/api/v1/bundles/segments", body)
    assert not offer["stored"]
    assert [one["sha256"] for one in offer["uploads"]] == [body["segments"][3]["sha256"]]


@pytest.mark.parametrize("spoil", [_too_large, _no_digest, _none, _too_many])
def test_a_list_that_no_client_would_send_is_refused(
    rig: Rig, project: Path, tmp_path: Path, spoil: Callable[[dict[str, Any]], None]
) -> None:
    body = stored(packed(project))
    spoil(body)
    with opened(rig, tmp_path / "store") as api:
        problem(api.key("ann").call("POST", "/api/v1/bundles/segments", body), 422, "invalid")


def test_a_job_reads_the_segments_of_its_own_bundle_alone(shop: Shop, project: Path) -> None:
    first = sent_by(shop, "ann", project).bundle
    (project / "src/77.py").write_bytes(b"changed")
    other = sent_by(shop, "ann", project).bundle
    objects = shop.objects("w", {"bundle_digest": first.digest})
    (fresh, *_) = {*other.segments} - {*first.segments}
    for segment in first.segments[:3]:
        assert len(objects.get(keys.segment(segment.sha256))) == segment.bytes
    with pytest.raises(KeyInvalid):
        objects.get(keys.segment(fresh.sha256))
    with pytest.raises(KeyInvalid):
        objects.put(keys.segment(fresh.sha256), b"x")
    with pytest.raises(KeyInvalid):
        shop.objects("without", {}).get(keys.segment(fresh.sha256))
