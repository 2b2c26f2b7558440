"""A worker with a valid token that lies in every field it may send."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

from forge_schema import zstd
from forge_schema.model.lease import Fence
from forge_schema.storage.keys import AttemptKeys
from support.http.http_worker import good, held, raw_worker

if TYPE_CHECKING:
    import httpx
    from support.http.api import Api

DIGEST = "ab" * 32


class HostileWorker:
    """Registers over HTTP, takes a job, and says of it whatever a test wants."""

    def __init__(self, api: Api, name: str = "liar") -> None:
        self.api = api
        self.worker = raw_worker(api, name)
        self.take()

    def take(self) -> None:
        """Claim the next job, which must be there."""
        (self.grant,) = self.worker.claim()
        self.job_id: int = self.grant["job_id"]
        fence = Fence(self.job_id, self.grant["token"], UUID(self.grant["nonce"]))
        self.keys = AttemptKeys(self.job_id, self.grant["attempt"], fence.mark)

    def send(self, path: str, said: str | dict[str, Any]) -> httpx.Response:
        """Send a body to a worker's path, also one that is no JSON."""
        text = said if isinstance(said, str) else json.dumps(said)
        headers = {**self.worker.headers, "Content-Type": "application/json"}
        # What no encoder writes, as half a surrogate pair, is an escape in it.
        return self.api.http.post(f"/api/v1/workers{path}", content=text.encode(), headers=headers)

    def say(self, record: str, **said: Any) -> httpx.Response:  # noqa: ANN401  lies of all types
        """Report something about its job."""
        return self.send(f"/job/{self.job_id}/{record}", {**held(self.grant), **said})

    def put(self, key: str, content: bytes) -> str:
        """Store an object below its attempt's folder, and return the digest."""
        digest = hashlib.sha256(content).hexdigest()
        one = {"key": key, "sha256": digest, "content": base64.b64encode(content).decode()}
        good(self.say("objects/small", objects=[one]))
        return digest

    def leave(self, path: str, content: bytes, **lies: Any) -> None:  # noqa: ANN401  as above
        """Store an artifact and record it, with other values where it lies."""
        key = self.keys.artifact(path)
        told, digest = {"path": path, "key": key, "bytes": len(content)}, self.put(key, content)
        good(self.say("artifacts", artifacts=[{**told, "sha256": digest, **lies}]))

    def leave_list(self, path: str, entry: dict[str, Any], **lies: Any) -> None:  # noqa: ANN401  as above
        """Record an artifact in chunks, whose list has this entry, with other values."""
        key = self.keys.chunked_artifact(path)
        whole = {"path": path, "size": 0, "sha256": DIGEST, "chunks": [], "chunk_bytes": 0, **entry}
        self.put(key, json.dumps({"version": 2, "files": [whole]}).encode())
        told = {"path": path, "key": key, "bytes": whole["size"], "sha256": whole["sha256"]}
        good(self.say("artifacts", artifacts=[{**told, **lies}]))

    def chunk(self, content: bytes) -> str:
        """Store a chunk of an artifact and return its key."""
        key = self.keys.chunk(hashlib.sha256(content).hexdigest())
        self.put(key, content)
        return key

    def write(
        self,
        number: int,
        content: bytes,
        *,
        stored: bytes | None = None,
        **lies: Any,  # noqa: ANN401  as above
    ) -> None:
        """Store a chunk of its log, or something else in its place, and record it."""
        key = self.keys.log_chunk(number)
        self.put(key, zstd.compress(content) if stored is None else stored)
        told = {"number": number, "key": key, "start": 0, "bytes": len(content)}
        digest = hashlib.sha256(content).hexdigest()
        good(self.say("log-chunks", **{**told, "sha256": digest, **lies}))

    def end(self, reason: str = "succeeded", **said: Any) -> None:  # noqa: ANN401  as above
        """End its attempt."""
        good(self.say("status", end={"reason": reason, **said}))
