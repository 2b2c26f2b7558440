"""Several objects of a lease's job signed, or stored, by one request: all of them or none."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from forge_schema.model.lease import Fence
from forge_schema.storage.keys import AttemptKeys
from forge_schema.storage.store import ObjectMissing
from support.http.api import problem
from support.http.http_worker import DIGEST, held, raw_worker

if TYPE_CHECKING:
    from support.http.api import Api

PUT = {"operation": "put", "size": 3, "sha256": DIGEST}


def test_several_objects_are_signed_at_once_in_order_or_none_is(api: Api) -> None:
    worker = raw_worker(api)
    api.rig.submit()
    (grant,) = worker.claim()
    mark = Fence(grant["job_id"], grant["token"], UUID(grant["nonce"])).mark
    own, path = AttemptKeys(grant["job_id"], 1, mark), f"/job/{grant['job_id']}/objects/batch"
    wanted = [{**PUT, "key": own.artifact(str(number))} for number in range(99)]
    wanted.append({"operation": "get", "key": own.checkpoint_manifest(0)})
    urls = worker.post(path, {**held(grant), "objects": wanted}).json()["urls"]
    assert [url["method"] for url in urls] == ["PUT"] * 99 + ["GET"]
    for url, one in zip(urls, wanted, strict=True):
        assert url["url"].startswith(f"{api.url}/api/v1/objects/{one['key']}?")
    for foreign in ("jobs/999/1-1-abc/artifacts/a", f"bundles/{DIGEST}.tar.zst"):
        body = {**held(grant), "objects": [*wanted[:9], {**PUT, "key": foreign}]}
        problem(worker.post(path, body), 404, "object_unknown")
    for count in (0, 101):
        body = {**held(grant), "objects": wanted[:1] * count}
        problem(worker.post(path, body), 422, "invalid")


def small(key: str, content: bytes = b"abc") -> dict[str, Any]:
    sha256 = hashlib.sha256(content).hexdigest()
    return {"key": key, "sha256": sha256, "content": b64encode(content).decode()}


def test_small_objects_are_stored_in_one_request_or_none_is(api: Api) -> None:
    worker, store = raw_worker(api), api.services.store
    api.rig.submit()
    (grant,) = worker.claim()
    mark = Fence(grant["job_id"], grant["token"], UUID(grant["nonce"])).mark
    own, path = AttemptKeys(grant["job_id"], 1, mark), f"/job/{grant['job_id']}/objects/small"
    few = [small(own.artifact(f"{number}/a"), bytes([number])) for number in range(100)]
    foreign = small("jobs/999/1-1-abc/artifacts/a")
    problem(
        worker.post(path, {**held(grant), "objects": [*few[1:], foreign]}), 404, "object_unknown"
    )
    damaged = {**few[0], "content": foreign["content"]}
    problem(
        worker.post(path, {**held(grant), "objects": [*few[1:], damaged]}), 409, "checksum_wrong"
    )
    with pytest.raises(ObjectMissing):
        store.get(few[1]["key"])
    # Once more, as after a lost answer.
    for _ in range(2):
        assert worker.post(path, {**held(grant), "objects": few}).status_code == 200
    assert [store.get(one["key"]) for one in few] == [bytes([number]) for number in range(100)]
