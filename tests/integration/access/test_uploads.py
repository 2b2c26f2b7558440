"""Only owners who uploaded code may run it: knowing its SHA-256 is not enough, on any route."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from forge_client.direct.backend import DirectBackend
from forge_client.project.bundle import pack
from forge_client.settings import QueueConnection
from forge_schema.model.states import Role
from forge_schema.queue.inputs import NotUploaded, Uploads
from forge_schema.storage import keys
from support.http.api import SPEC, Api, Caller, opened, problem
from support.queue.rig import Rig, spec
from support.store.storage import moto_server, new_bucket, use_credentials

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CODE = b"the code of ann"
DIGEST = hashlib.sha256(CODE).hexdigest()
ABSENT = "ab" * 32


@pytest.fixture(params=["file", "s3"])
def api(
    request: pytest.FixtureRequest, rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Api]:
    if request.param == "file":
        with opened(rig, tmp_path / "store") as api:
            yield api
        return
    use_credentials(monkeypatch)
    with (
        moto_server() as endpoint,
        new_bucket(endpoint) as bucket,
        opened(rig, bucket.url(endpoint)) as api,
    ):
        yield api


@pytest.fixture(params=["bundles", "images"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def offered(who: Caller, kind: str, digest: str = DIGEST) -> dict[str, Any]:
    answer: dict[str, Any] = who.post(f"/api/v1/{kind}", {"digest": digest, "bytes": len(CODE)})
    return answer


def upload(who: Caller, kind: str) -> None:
    offer = offered(who, kind)
    answer = httpx.request(
        offer["method"], offer["url"], headers=offer["headers"], content=CODE, timeout=60
    )
    assert answer.is_success, answer.text


def naming(kind: str, digest: str = DIGEST) -> dict[str, str]:
    return {"bundle_digest" if kind == "bundles" else "image_tar": digest}


def refused(who: Caller, kind: str, digest: str) -> str:
    answer = who.call("POST", "/api/v1/queue/submit", {"jobs": [{**SPEC, **naming(kind, digest)}]})
    return problem(answer, 404, "not_uploaded").replace(digest, "")


def shape(offer: dict[str, Any]) -> object:
    return offer["stored"], sorted(offer["headers"]), httpx.URL(offer["url"]).params.keys()


def test_code_of_another_owner_is_as_good_as_absent(api: Api, kind: str) -> None:
    ann, bob = api.key("ann"), api.key("bob")
    upload(ann, kind)
    assert ann.submit(**naming(kind))
    assert shape(offered(bob, kind)) == shape(offered(bob, kind, ABSENT))
    assert refused(bob, kind, DIGEST) == refused(bob, kind, ABSENT)
    # The check before an upload reveals nothing either.
    for digest in (DIGEST, ABSENT):
        job = {**SPEC, **naming(kind, digest)}
        assert bob.call("POST", "/api/v1/queue/check", {"jobs": [job]}).is_success


def test_code_of_another_owner_is_no_diff_either(api: Api) -> None:
    """Who may name it as the diff of a job could download it."""
    ann, bob = api.key("ann"), api.key("bob")
    upload(ann, "bundles")
    git = {"revision": "0" * 40, "diff": DIGEST}
    answer = bob.call("POST", "/api/v1/queue/submit", {"jobs": [{**SPEC, "git": git}]})
    assert problem(answer, 404, "not_uploaded")
    assert ann.submit(git=git)


def test_owner_who_has_the_code_too_uploads_it_and_runs_it(api: Api, kind: str) -> None:
    ann, bob = api.key("ann"), api.key("bob")
    for who in (ann, bob):
        upload(who, kind)
        assert who.submit(**naming(kind))
        assert offered(who, kind) == {"stored": True}
    # The second upload took nothing from the first owner.
    assert offered(ann, kind) == {"stored": True}


def test_upload_of_other_content_gives_nothing(rig: Rig, tmp_path: Path) -> None:
    with opened(rig, tmp_path / "store") as api:
        upload(api.key("ann"), "bundles")
        bob = api.key("bob")
        offer = offered(bob, "bundles")
        wrong = b"x" * len(CODE)
        answer = httpx.put(offer["url"], headers=offer["headers"], content=wrong, timeout=60)
        assert problem(answer, 422, "checksum_wrong")
        # Nor does a URL changed to name another owner.
        theirs = offer["url"].replace("owner=bob", "owner=eve")
        assert problem(httpx.put(theirs, content=CODE, timeout=60), 403, "signature_invalid")
        assert refused(bob, "bundles", DIGEST)
        assert api.services.store.get(keys.bundle(DIGEST)) == CODE


def test_admin_passes_code_on(api: Api, kind: str) -> None:
    upload(api.key("ann"), kind)
    root, bob = api.key("root", Role.ADMIN), api.key("bob")
    assert offered(root, kind) == {"stored": True}
    assert root.submit(**naming(kind), owner="bob")
    assert bob.submit(**naming(kind))


def test_who_reaches_the_database_writes_down_whose_it_is(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    bundle = pack(tmp_path / "project", tmp_path / "bundle", limit_bytes=1 << 20)
    place = (tmp_path / "store").as_uri()
    with DirectBackend(QueueConnection(rig.url, place), owner="ann") as direct:
        direct.upload_bundle(bundle)
        direct.submit([{**SPEC, "owner": "ann", "bundle_digest": bundle.digest}])
    with opened(rig, tmp_path / "store") as api:
        told = {"digest": bundle.digest, "bytes": bundle.size}
        assert api.key("ann").post("/api/v1/bundles", told) == {"stored": True}
        assert api.key("ann").submit(bundle_digest=bundle.digest)
        assert not api.key("bob").post("/api/v1/bundles", told)["stored"]


def test_batch_with_one_stolen_digest_submits_nothing(rig: Rig) -> None:
    Uploads(rig.database).add("ann", DIGEST)
    with pytest.raises(NotUploaded, match="bob has not uploaded"):
        rig.queue.submit([spec(bundle_digest=DIGEST), spec(owner="bob", bundle_digest=DIGEST)])
    assert rig.rows("SELECT FROM job") == []


def test_submit_repeated_after_a_time_out_is_the_same_job(rig: Rig) -> None:
    job = spec(bundle_digest=DIGEST, idempotency_key="k")
    first = rig.queue.submit([job], any_owner=True)
    rig.rows("DELETE FROM upload")
    assert rig.queue.submit([job]) == first
