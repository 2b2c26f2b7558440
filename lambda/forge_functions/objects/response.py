"""Send an object in pieces, and never as a page of this site."""

import hashlib
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import closing
from typing import BinaryIO

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from forge_schema.storage import Store
from forge_schema.storage.manifest import CheckpointUnsound, Entry, Extent
from starlette.types import Receive, Scope, Send

from forge_functions.services import Services

# Many clients may read slowly, and a few pieces are in memory for each.
PIECE = 64 << 10
TYPE = "application/octet-stream"
HEADERS = {
    # A job wrote it: a browser must not run it with the dashboard's origin.
    "Content-Disposition": "attachment",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, no-store",
}


class ObjectResponse(StreamingResponse):
    """Sends an open file and closes it."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        super().__init__((), media_type=TYPE, headers={"Content-Length": str(size), **HEADERS})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file as file:
            self.body_iterator = _in_turn(iter(lambda: file.read(PIECE), b""), scope)
            await super().__call__(scope, receive, send)


class AssembledResponse(StreamingResponse):
    """Sends a file from its chunks, each verified before the last of it is sent."""

    def __init__(self, store: Store, entry: Entry) -> None:
        self._pieces = (piece for one in entry.extents for piece in _verified(store, one))
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
