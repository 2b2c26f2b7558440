"""A worker that runs nothing: it holds one job, writes what a test gives it, and ends the job."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from forge_schema import zstd
from forge_schema.model.attempt_records import ArtifactRecord, LogChunkRecord
from forge_schema.model.states import Reason
from forge_schema.storage import keys, open_store

if TYPE_CHECKING:
    from forge_schema.model.lease import Grant
    from support.queue.live import Live
    from support.queue.rig import Rig


class Holder:
    """Plays the worker that holds a job's lease: it writes output and files, and ends the job."""

    def __init__(self, rig: Rig | Live, store_url: str, worker: str = "w") -> None:
        self._rig = rig
        self._store = open_store(store_url)
        self.grant: Grant = rig.worker(worker).claim_one()
        fence = self.grant.fence
        self._keys = keys.AttemptKeys(fence.job_id, self.grant.attempt, fence.token)
        self._start = 0
        self._number = 0

    def write(self, data: bytes) -> str:
        key = self._keys.log_chunk(self._number)
        self._store.put(key, zstd.compress(data))
        digest = hashlib.sha256(data).hexdigest()
        chunk = LogChunkRecord(self._number, key, self._start, len(data), digest)
        assert self._rig.records.add_log_chunk(self.grant.fence, chunk)
        self._number, self._start = self._number + 1, self._start + len(data)
        return key

    def leave(self, path: str, data: bytes, *, stored_as: str = "", **more: Any) -> str:  # noqa: ANN401  an artifact's
        key = self._keys.artifact(stored_as or path)
        self._store.put(key, data)
        file = ArtifactRecord(path, key, len(data), hashlib.sha256(data).hexdigest(), **more)
        assert self._rig.records.add_artifacts(self.grant.fence, [file])
        return key

    def end(self, reason: Reason = Reason.SUCCEEDED, exit_code: int | None = None) -> None:
        assert self._rig.finish(self.grant, reason, exit_code=exit_code).accepted
