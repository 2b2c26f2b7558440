"""Objects for holders of leases: access to them, their answers and their uploads."""

import hashlib
import os
import re
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import closing
from http import HTTPStatus
from typing import TYPE_CHECKING, BinaryIO

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from forge_schema.model.quantities import counted
from forge_schema.model.stored import SignedUrl
from forge_schema.protocol.messages import Transfer
from forge_schema.queue.attempt_records import OwnLease
from forge_schema.storage import Store, keys
from forge_schema.storage.file_store import Incoming
from forge_schema.storage.manifest import CheckpointUnsound, Entry, Extent, is_code
from forge_schema.storage.same_machine import UNREAD
from forge_schema.storage.signed import Permit, Signer
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from forge_functions.auth.worker import absent
from forge_functions.bodies import RECEIVED, ZERO_COPY
from forge_functions.errors import Refused

if TYPE_CHECKING:
    from forge_functions.middleware.few_copies import ReceivedBody
    from forge_functions.services import Services

# Many clients may read slowly, and a few pieces are in memory for each: of a chunk two more than of
# a file, which takes half of the CPU with larger ones.
PIECE, FILE_PIECE = 64 << 10, 256 << 10
TYPE = "application/octet-stream"
HEADERS = {
    # A job wrote it: a browser must not run it with the dashboard's origin.
    "Content-Disposition": "attachment",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, no-store",
}

# Of any attempt: an earlier one may have stored a checkpoint's files.
CHECKPOINT = r"jobs/{job_id}/[^/]+/checkpoints/(files/)?[^/]+"
# Of another job only by digest, as listed in those manifests.
SOURCE_FILE = r"jobs/{job_id}/[^/]+/checkpoints/files/([0-9]{{6}}-)?[0-9a-f]{{64}}"
# Of the jobs that its inputs are from.
INPUT_FILE = r"jobs/({jobs})/[^/]+/(artifacts|chunked|chunks|checkpoints)/.+"

# All that the server may name by its own copy.
UNREAD_FILE = re.compile(rf"jobs/[^/]+/[^/]+/checkpoints/files/[0-9]{{6}}-{UNREAD}")

TOGETHER = 1 << 20  # memory used by one upload


class ObjectResponse(StreamingResponse):
    """Sends an open file and closes it."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size
        super().__init__((), media_type=TYPE, headers={"Content-Length": str(size), **HEADERS})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file as file:
            if ZERO_COPY in scope.get("extensions", ()):
                head = {"type": "http.response.start", "status": self.status_code}
                await send({**head, "headers": self.raw_headers})
                await send(self._whole(scope))
                return
            self.body_iterator = _in_turn(iter(lambda: file.read(FILE_PIECE), b""), scope)
            await super().__call__(scope, receive, send)

    def _whole(self, scope: Scope) -> Message:
        shared: Services = scope["app"].state.services
        turns = {"few_at_once": shared.object_pieces}
        return {"type": ZERO_COPY, "file": self._file, "count": self._size, **turns}


class AssembledResponse(StreamingResponse):
    """Sends a file from its chunks, each verified before the last of it is sent."""

    def __init__(self, store: Store, entry: Entry) -> None:
        self._pieces = (piece for extent in entry.extents for piece in _verified(store, extent))
        super().__init__(
            (), media_type=TYPE, headers={"Content-Length": str(entry.size), **HEADERS}
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with closing(self._pieces) as pieces:
            self.body_iterator = _in_turn(pieces, scope)
            await super().__call__(scope, receive, send)


async def _in_turn(pieces: Iterator[bytes], scope: Scope) -> AsyncIterator[bytes]:
    """Read pieces a few at a time, of all answers: those of a hundred would hold up everybody."""
    shared: Services = scope["app"].state.services
    piece = b"."
    while piece:
        async with shared.object_pieces:
            piece = await run_in_threadpool(next, pieces, b"")
        if piece:
            yield piece


def _verified(store: Store, extent: Extent) -> Generator[bytes, None, None]:
    """Yield a chunk in pieces, the last one only if the whole is what it should be.

    The answer has begun: all that is left for a damaged chunk is to break it off.
    """
    digest, held, came = hashlib.sha256(), b"", 0
    with closing(store.stream(extent.key)) as pieces:
        for piece in pieces:
            digest.update(piece)
            came += len(piece)
            if came > extent.size:
                raise _damaged(extent)
            if held:
                yield held
            held = piece
    if came != extent.size or digest.hexdigest() != extent.sha256:
        raise _damaged(extent)
    yield held


def _damaged(extent: Extent) -> CheckpointUnsound:
    return CheckpointUnsound(f"the stored chunk {extent.key} is damaged")


def may_put(lease: OwnLease, key: str) -> bool:
    """Tell whether a key is below the lease's own prefix."""
    return key.startswith(lease.keys.prefix) and keys.is_valid(key)


def fits(key: str, sha256: str | None) -> bool:
    """Tell whether a key may be signed with a SHA-256: with none, only a checkpoint's file."""
    return sha256 != UNREAD or UNREAD_FILE.fullmatch(key) is not None


def may_get(lease: OwnLease, key: str, store: Store) -> bool:
    """Tell whether a key is the job's code or image, or part of what else it may read.

    That are all its own checkpoints, the one of another job that it starts from, and its inputs.
    """
    if is_input(lease.bundle_digest, lease.image_tar, key, store):
        return True
    places = [CHECKPOINT.format(job_id=lease.fence.job_id)]
    if lease.source_keys:
        places += map(re.escape, lease.source_keys)
        places.append(SOURCE_FILE.format(job_id=lease.source_job_id))
    if lease.input_jobs:
        places.append(INPUT_FILE.format(jobs="|".join(map(str, lease.input_jobs))))
    return re.fullmatch("|".join(places), key) is not None and keys.is_valid(key)


def is_input(bundle: str | None, image_tar: str | None, key: str, store: Store) -> bool:
    """Tell whether a key is the bundle with this digest, one of its segments, or the image."""
    if image_tar is not None and key == keys.image(image_tar):
        return True
    return bundle is not None and is_code(bundle, key, store)


def signed(lease: OwnLease, wanted: Transfer, signer: Signer, store: Store) -> SignedUrl:
    """Sign a request for an object.

    Raises:
        Refused: 404 for an object that the holder may not access.
        ObjectTooLarge: the store does not accept it in one request.
    """
    if wanted.operation == "get":
        if not may_get(lease, wanted.key, store):
            raise absent()
        return signer.get(wanted.key)
    if not may_put(lease, wanted.key) or not fits(wanted.key, wanted.sha256):
        raise absent()
    assert wanted.size is not None  # noqa: S101 - the body's validator checks it
    assert wanted.sha256 is not None  # noqa: S101 - as above
    return signer.put(
        wanted.key, size=wanted.size, sha256=wanted.sha256, if_absent=wanted.if_absent
    )


class Upload:
    """Writes the body, and rejects one that is not the signed object."""

    def __init__(self, permit: Permit, incoming: Incoming) -> None:
        self._permit, self._incoming = permit, incoming
        self._came = 0
        self._digest = hashlib.sha256()

    async def run(self, request: Request) -> None:
        """Read the whole body.

        Raises:
            Refused: 413 above the signed size; 422 below it, or for another SHA-256.
        """
        self._check_announced(request.headers.get("Content-Length"))
        body: ReceivedBody | None = request.scope.get("extensions", {}).get(RECEIVED)
        shared: Services = request.app.state.services
        try:
            if not (body and await body.keep(self._keep, shared.object_pieces)):
                await self._stream(request)
        except ClientDisconnect as error:
            raise self._too_short() from error
        self._check_whole()

    @property
    def sha256(self) -> str:
        """The SHA-256 of what came."""
        return self._digest.hexdigest()

    def copy(self, file: int, offset: int) -> None:
        """Take the content from an open file instead; raises as `run`.

        The permit may not know its SHA-256.
        """
        piece = memoryview(bytearray(min(FILE_PIECE, self._permit.size)))
        while left := self._permit.size - self._came:
            if not (came := os.preadv(file, [piece[:left]], offset + self._came)):
                break
            self._keep(piece[:came])
        if self._permit.sha256 != UNREAD or self._came < self._permit.size:
            self._check_whole()

    async def _stream(self, request: Request) -> None:
        held: list[bytes] = []
        size = 0
        async for piece in request.stream():
            held.append(piece)
            size += len(piece)
            if self._came + size > self._permit.size:
                raise self._too_large()
            if size >= TOGETHER:
                await run_in_threadpool(self._keep_all, held)
                held, size = [], 0
        await run_in_threadpool(self._keep_all, held)

    def _check_announced(self, length: str | None) -> None:
        if length is None or int(length) == self._permit.size:
            return
        raise self._too_large() if int(length) > self._permit.size else self._too_short()

    def _keep_all(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self._keep(piece)

    def _keep(self, piece: bytes | memoryview) -> None:
        self._came += len(piece)
        self._digest.update(piece)
        self._incoming.write(piece)

    def _check_whole(self) -> None:
        if self._came < self._permit.size:
            raise self._too_short()
        if self.sha256 != self._permit.sha256:
            raise _unfit("checksum_wrong", "the body's SHA-256 is not the one signed")

    def _too_large(self) -> Refused:
        return Refused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "too_large",
            f"the body is larger than the signed {counted(self._permit.size, 'byte')}",
        )

    def _too_short(self) -> Refused:
        return _unfit(
            "body_short",
            f"the body is smaller than the signed {counted(self._permit.size, 'byte')}",
        )


def _unfit(code: str, message: str) -> Refused:
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, code, message)
