"""Artifacts: upload the files in a job's output folder after the job has ended."""

import hashlib
import os
from contextlib import ExitStack
from typing import BinaryIO

from forge_schema.model.attempt_records import Artifact
from forge_schema.model.fields import PATH_BYTES
from forge_schema.storage import KeyInvalid, ObjectTooLarge
from forge_schema.storage.manifest import sha256

from forge_worker.attempt.attempt import Attempt, with_advice
from forge_worker.files.copies import check_size, copy
from forge_worker.files.safe_files import listing, opened
from forge_worker.queue.gateway import Gateway
from forge_worker.queue.objects import Objects


class ArtifactKeeper:
    """Stores an attempt's artifacts; repeated after a failure, it resumes where it stopped."""

    def __init__(self, attempt: Attempt, store: Objects, gateway: Gateway, limit_mb: int) -> None:
        self._attempt = attempt
        self._store = store
        self._gateway = gateway
        self._limit_mb = limit_mb
        self._done: dict[str, Artifact | None] = {}
        # Why the store permanently refuses some of the files.
        self.refused: list[str] = []

    def store(self) -> int:
        """Store every regular file in the output folder, then index them; return their number.

        A file that cannot be opened, or is too large for the store, is named in the job's log, and
        the others are stored. Those of a gang's other ranks are listed below `rank-1/` and so on.

        Raises:
            DiskFull: they exceed the job's disk request; none is stored.
            StoreError: the store does not answer.
            OSError: this machine's disk is full or faulty.
            Stopped: the lease is lost.
        """
        found = listing(self._attempt.folders.output)
        check_size(found, "the output", self._limit_mb)
        for relative in sorted(found):
            if relative not in self._done:
                self._done[relative] = self._stored(relative)
        stored = [artifact for artifact in self._done.values() if artifact is not None]
        if stored and not self._gateway.add_artifacts(self._attempt.fence, stored):
            self._attempt.lose()
        return len(stored)

    def _stored(self, relative: str) -> Artifact | None:
        self._attempt.while_held()
        with ExitStack() as held:
            try:
                source = held.enter_context(opened(self._attempt.folders.output, relative))
            except OSError as error:
                self._attempt.note(f"the artifact {relative!r} could not be read: {error}")
                return None
            return self._put(relative, source)

    def _put(self, relative: str, source: BinaryIO) -> Artifact | None:
        # Copied, so that the upload cannot follow a link of the job.
        staged = self._attempt.folders.staging / "artifact"
        copy(source, staged, os.fstat(source.fileno()).st_size, self._attempt.while_held)
        rank = self._attempt.grant.rank
        listed = f"rank-{rank}/{relative}" if rank else relative
        key = self._key(listed)
        try:
            self._store.put_file(key, staged, progress=self._attempt.while_held)
        except ObjectTooLarge as error:
            self.refused.append(f"the artifact {relative!r} was not stored: {with_advice(error)}")
            self._attempt.note(self.refused[-1])
            return None
        return Artifact(readable(listed), key, staged.stat().st_size, sha256(staged))

    def _key(self, listed: str) -> str:
        try:
            return self._attempt.keys.artifact(listed)
        except KeyInvalid:
            digest = hashlib.sha256(os.fsencode(listed)).hexdigest()
            return self._attempt.keys.artifact(f"unnameable/{digest}")


def readable(path: str) -> str:
    """Return a path with invalid bytes escaped, because Postgres stores only Unicode.

    A path too long for an index is shortened, and ends with a part of its digest.
    """
    name = os.fsencode(path)
    text = name.decode(errors="backslashreplace").encode()
    if len(text) <= PATH_BYTES:
        return text.decode()
    kept = text[: PATH_BYTES - 20].decode(errors="ignore")
    return f"{kept}-{hashlib.sha256(name).hexdigest()[:16]}"
