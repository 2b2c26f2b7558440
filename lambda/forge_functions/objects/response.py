"""Send an object in pieces, and never as a page of this site."""

import hashlib
from collections.abc import AsyncIterator
from typing import BinaryIO

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from forge_schema.storage import Store
from forge_schema.storage.manifest import CheckpointUnsound, Entry, Extent
from starlette.types import Receive, Scope, Send

PIECE = 1 << 20
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
        super().__init__(
            _pieces(file),
            media_type="application/octet-stream",
            headers={"Content-Length": str(size), **HEADERS},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()


class AssembledResponse(StreamingResponse):
    """Sends a file from its chunks, each verified before any of it is sent."""

    def __init__(self, store: Store, entry: Entry) -> None:
        super().__init__(
            _chunks(store, entry.extents),
            media_type="application/octet-stream",
            headers={"Content-Length": str(entry.size), **HEADERS},
        )


async def _chunks(store: Store, extents: list[Extent]) -> AsyncIterator[bytes]:
    for extent in extents:
        data = await run_in_threadpool(_verified, store, extent)
        for start in range(0, len(data), PIECE):
            yield data[start : start + PIECE]


def _verified(store: Store, extent: Extent) -> bytes:
    # Its size first, since all of it is read into memory.
    sound = store.size(extent.key) == extent.size
    data = store.get(extent.key) if sound else b""
    if not sound or hashlib.sha256(data).hexdigest() != extent.sha256:
        # The answer has begun: all that is left is to break it off.
        raise CheckpointUnsound(f"the stored chunk {extent.key} is damaged")
    return data


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await run_in_threadpool(file.read, PIECE):
        yield piece
