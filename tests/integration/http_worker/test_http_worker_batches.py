"""Several objects of a lease's job signed by one request: all of them or none."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from forge_schema.model.lease import Fence
from forge_schema.storage.keys import AttemptKeys
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
        assert url["url"].startswith(f"{api.url}/api/objects/{one['key']}?")
    for foreign in ("jobs/999/1-1-abc/artifacts/a", f"bundles/{DIGEST}.tar.zst"):
        body = {**held(grant), "objects": [*wanted[:9], {**PUT, "key": foreign}]}
        problem(worker.post(path, body), 404, "object_unknown")
    for count in (0, 101):
        body = {**held(grant), "objects": wanted[:1] * count}
        problem(worker.post(path, body), 422, "invalid")
