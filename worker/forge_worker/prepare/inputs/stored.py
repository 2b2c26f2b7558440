"""Artifacts and checkpoints of other jobs as inputs, through the store that the worker reads."""

from collections.abc import Generator, Iterator, Mapping, Sequence

from forge_schema.model.lease import Fence
from forge_schema.model.spec.inputs import ARTIFACT, NamedSource
from forge_schema.model.stored import InputFile, stays_inside
from forge_schema.storage import ObjectMissing
from forge_schema.storage.manifest import CheckpointUnsound, Entry, Extent, Manifest, joined

from forge_worker.prepare.inputs.source import InputListing, InputUnusable, below, check_paths
from forge_worker.queue.gateway import Gateway
from forge_worker.queue.objects import Objects
from forge_worker.transfers.fetching import StoredParts


class JobFiles:
    """The artifacts of another job, all or those at a path, or one of its checkpoints."""

    def __init__(
        self, source: NamedSource, fence: Fence, gateway: Gateway, objects: Objects
    ) -> None:
        self._source = source
        self._fence = fence
        self._gateway = gateway
        self._objects = objects
        self._parts = StoredParts(objects)

    def listing(self) -> InputListing:
        """Return the files of the job, as `InputSource`."""
        try:
            if self._source.kind == ARTIFACT:
                return self._artifacts()
            return self._checkpoint()
        except ObjectMissing as error:
            raise InputUnusable(f"the store does not have it any more: {error.message}") from error
        except CheckpointUnsound as error:
            raise InputUnusable(error.message) from error

    def expect(self, extents: Sequence[Extent]) -> None:
        """Prepare for parts that are read next."""
        self._parts.expect(extents)

    def read(self, extent: Extent) -> Generator[bytes, None, None]:
        """Yield the content of a part."""
        return self._parts.read(extent)

    def _artifacts(self) -> InputListing:
        rows = list(self._rows())
        if not rows:
            what = f"artifact {self._source.path!r}" if self._source.path else "artifacts"
            raise self._lacks(what)
        place = self._source.path
        paths = {row.path: below(row.path, place) for row in rows}
        check_paths(paths.values())
        # One that a link leads out of would be a path of this machine.
        links = {
            paths[row.path]: row.target
            for row in rows
            if row.target is not None and stays_inside(paths[row.path], row.target)
        }
        files = [row for row in rows if row.target is None]
        entries = [_entry(row, paths[row.path]) for row in files]
        contents = {paths[row.path]: row.sha256 for row in files}
        # Its objects are `jobs/JOB/ATTEMPT-TOKEN/…`.
        attempt = rows[0].keys[0].split("/")[2].partition("-")[0]
        return InputListing(f"attempt {attempt}", entries, contents, links)

    def _rows(self) -> Iterator[InputFile]:
        job, path, after = self._source.job_id, self._source.path, ""
        while page := self._gateway.input_artifacts(self._fence, job, path, after):
            yield from page
            after = page[-1].path

    def _checkpoint(self) -> InputListing:
        named = {
            n: int(text) for n, text in self._source.parts.items() if n in {"attempt", "number"}
        }
        checkpoint = self._gateway.input_checkpoint(
            self._fence, self._source.job_id, named.get("attempt"), named.get("number")
        )
        if checkpoint is None:
            raise self._lacks("such checkpoint")
        files: Mapping[int, Sequence[Entry]] = {
            rank: self._manifest(key) for rank, key in enumerate(checkpoint.keys)
        }
        entries = [entry for _, entry in joined(files, 0)]
        return InputListing(
            f"{checkpoint.attempt}.{checkpoint.number}",
            [entry for entry in entries if not entry.target],
            {entry.path: entry.sha256 for entry in entries if not entry.target},
            {entry.path: entry.target for entry in entries if entry.target},
        )

    def _manifest(self, key: str) -> tuple[Entry, ...]:
        return Manifest.loaded(self._objects.get(key), job_id=self._source.job_id).files

    def _lacks(self, what: str) -> InputUnusable:
        return InputUnusable(
            f"job {self._source.job_id} has no {what}",
            hint=f"`forge artifacts {self._source.job_id}` and `forge checkpoints` list them",
        )


def _entry(row: InputFile, path: str) -> Entry:
    if row.chunk_bytes:
        return Entry.in_chunks(path, row.bytes, row.keys, row.chunk_bytes)
    return Entry(path, row.bytes, row.sha256, row.keys[0])
