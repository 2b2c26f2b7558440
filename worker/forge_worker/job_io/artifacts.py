"""Artifacts: upload the files in a job's output folder after the job has ended."""

import hashlib
import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from stat import S_ISREG

from forge_schema.model.attempt_records import ArtifactRecord, StoredArtifacts
from forge_schema.model.fields import PATH_BYTES
from forge_schema.model.quantities import names_text
from forge_schema.storage import KeyInvalid, Objects, ObjectTooLarge
from forge_schema.storage.keys import UNNAMEABLE
from forge_schema.storage.manifest import CHUNK_BYTES, Entry, Manifest

from forge_worker.attempt import LiveAttempt, with_advice
from forge_worker.attempt_folders import check_size
from forge_worker.files.safe_files import Listing, Parts, opened, walk
from forge_worker.files.saved_files import output_files
from forge_worker.job_io.logs import CheckpointNotes
from forge_worker.queue.gateway import Gateway
from forge_worker.transfers.sending import FileSender, FileSource, StoredChunks

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
# Files that people want to keep; folders with others; and how many entries are looked at.
RESULTS = frozenset({
    ".bin", ".ckpt", ".csv", ".gguf", ".h5", ".joblib", ".keras", ".msgpack", ".npy", ".npz",
    ".onnx", ".parquet", ".pdparams", ".pkl", ".pt", ".pth", ".safetensors", ".zip",
})  # fmt: skip
NO_RESULTS = frozenset({"__pycache__", "cache", "data", "dataset", "datasets", "site-packages"})
MOST_LOOKS = 20_000


class ArtifactKeeper:
    """Stores an attempt's artifacts; repeated after a failure, it resumes where it stopped."""

    def __init__(
        self,
        attempt: LiveAttempt,
        store: Objects,
        gateway: Gateway,
        limit_mb: int,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._attempt = attempt
        self._store = store
        self._gateway = gateway
        self._limit_mb = limit_mb
        self._chunk_bytes = chunk_bytes
        self._chunks = StoredChunks(attempt.folders.stored_artifacts)
        # What an earlier agent has stored.
        self._chunks.resume({}, "")
        self._folder = output_files(attempt.folders.root)
        self._notes = CheckpointNotes(attempt, "artifacts")
        self._times: Listing = {}
        self._done: dict[str, ArtifactRecord | None] = {}
        # Why the store permanently refuses some of the files, or nothing was kept.
        self.refused: list[str] = []
        # Unknown to an agent that did not start the job.
        self._project: set[str] | None = None

    def store(self) -> int:
        """Store every file and link in the output folder, then index them; return their number.

        A file that cannot be opened, or is too large for the store, and a link that leads out of
        the folder, are named in the job's log, and the others are stored. Those of a gang's other
        ranks are listed below `rank-1/` and so on.

        Raises:
            DiskFull: they exceed the job's disk request; none is stored.
            StoreError: the store does not answer.
            OSError: this machine's disk is full or faulty.
            Stopped: the lease is lost.
        """
        look = self._folder.look()
        self._notes.left_out(look.refused)
        files = self._times = look.files
        check_size(files, "the output", self._limit_mb)
        left = {path: status[0] for path, status in sorted(files.items()) if path not in self._done}
        self._send_links({p: to for p, to in look.links.items() if p not in self._done})
        self._send(left)
        artifacts = [artifact for artifact in self._done.values() if artifact is not None]
        if artifacts and not self._gateway.record(self._attempt.fence, StoredArtifacts(artifacts)):
            self._attempt.lose()
        return len(artifacts)

    def look(self) -> None:
        """Remember what is in the job's folder before its program runs."""
        if not self._keeps:
            self._project = _results(self._attempt.folders.work)

    @property
    def _keeps(self) -> bool:
        """Whether the job says what to keep, or has kept something."""
        asked = self._attempt.grant.spec
        named = asked.get("checkpoint") or asked.get("checkpoint_dir")
        return bool(self._done or named or self._attempt.folders.has_output())

    def tell_unkept(self) -> None:
        """Say what a job wrote in its folder, if it kept nothing: it knows no other places."""
        if self._project is None or self._keeps:
            return
        if left := sorted(_results(self._attempt.folders.work) - self._project):
            top, _, below = left[0].partition("/")
            option = f"checkpoint-dir {shlex.quote(top)}"
            if not below:
                option = f"checkpoint '*{PurePosixPath(top).suffix}'"
            self.refused.append(
                f"not kept: {names_text(left, 3)} in the job's folder; submit with --{option}, or"
                " write to $FORGE_OUTPUT_DIR"
            )
            self._attempt.note(self.refused[-1])

    def _send(self, sizes: Mapping[str, int]) -> None:
        """Store several files at once."""
        sources = [self._source(path, size) for path, size in sizes.items() if self._opens(path)]
        self._done |= dict.fromkeys(sizes.keys() - {source.path for source in sources})
        sender = FileSender(
            self._store, self._chunks, self._attempt.keys.chunk, self._attempt.while_held
        )
        try:
            sender.send(sources)
        finally:
            whole = [
                source
                for source in sources
                if not source.chunked and (not source.left or source.refused)
            ]
            self._done |= {source.path: self._artifact(source) for source in whole}
        for source in sources:
            if source.chunked:
                self._done[source.path] = self._artifact(source)

    def _send_links(self, targets: Mapping[str, str]) -> None:
        """Store what links say, several at once."""
        paths = {path: os.fsencode(target) for path, target in targets.items()}
        sources = [self._source(path, len(text), text) for path, text in paths.items()]
        FileSender(
            self._store, self._chunks, self._attempt.keys.chunk, self._attempt.while_held
        ).send(sources)
        for source in sources:
            made = self._artifact(source)
            target = readable(targets[source.path])
            self._done[source.path] = None if made is None else replace(made, target=target)

    def _opens(self, path: str) -> bool:
        """Return whether a file can be opened; if not, say so in the job's log."""
        try:
            with opened(self._attempt.folders.output, path):
                return True
        except OSError as error:
            self._attempt.note(f"the artifact {path!r} could not be read: {error}")
            return False

    def _source(self, path: str, size: int, text: bytes | None = None) -> FileSource:
        def from_text(offset: int, size: int) -> bytes:
            return (text or b"")[offset : offset + size]

        read = partial(self._read, path) if text is None else from_text
        return FileSource(path, size, read, self._chunk_bytes, key=self._key(self._listed(path)))

    def _read(self, path: str, offset: int, size: int) -> bytes:
        with opened(self._attempt.folders.output, path) as source:
            return os.pread(source.fileno(), size, offset)

    def _artifact(self, source: FileSource) -> ArtifactRecord | None:
        # Another file may have had the chunk that was refused.
        lacks = source.chunked and any(digest not in self._chunks for digest in source.digests)
        if source.refused is not None or lacks:
            error = source.refused or ObjectTooLarge("one of its chunks was refused")
            self._refuse(source.path, error)
            return None
        listed = readable(self._listed(source.path))
        at = self._modified_at(source.path)
        if not source.chunked:
            key, digest = source.keys[0], source.digests[0]
            return ArtifactRecord(listed, key, source.size, digest, modified_at=at)
        key = self._chunk_list(source)
        return ArtifactRecord(listed, key, source.size, source.sha256, modified_at=at)

    def _modified_at(self, path: str) -> datetime | None:
        if path not in self._times:
            return None
        with suppress(OverflowError, ValueError):
            at = BEGINNING + timedelta(microseconds=self._times[path][1] // 1000)
            # The queue takes no others.
            return at if MINYEAR < at.year < MAXYEAR else None
        return None

    def _chunk_list(self, source: FileSource) -> str:
        """Store the list of a file's chunks, and return its key."""
        entry = Entry.in_chunks(source.path, source.size, source.keys, self._chunk_bytes)
        key = self._key(self._listed(source.path), chunked=True)
        self._store.put(key, Manifest((entry,)).dumped())
        return key

    def _refuse(self, path: str, error: ObjectTooLarge) -> None:
        self.refused.append(f"the artifact {path!r} was not stored: {with_advice(error)}")
        self._attempt.note(self.refused[-1])

    def _listed(self, path: str) -> str:
        """Return a file's path in the job's list of artifacts."""
        rank = self._attempt.grant.rank
        return f"rank-{rank}/{path}" if rank else path

    def _key(self, listed: str, *, chunked: bool = False) -> str:
        keys = self._attempt.keys
        named = keys.chunked_artifact if chunked else keys.artifact
        try:
            return named(listed)
        except KeyInvalid:
            return named(f"{UNNAMEABLE}/{hashlib.sha256(os.fsencode(listed)).hexdigest()}")


def _results(work: Path) -> set[str]:
    """Return the files of a job's folder that look like results; of a large one, only some."""

    def enters(parts: Parts) -> bool:
        return parts[-1] not in NO_RESULTS and not parts[-1].startswith(".")

    looked = islice(walk(work, enters=enters), MOST_LOOKS)
    found = ("/".join(parts) for parts, status in looked if S_ISREG(status.st_mode))
    return {path for path in found if PurePosixPath(path).suffix in RESULTS and path.isprintable()}


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
