"""Send an object in pieces, and never as a page of this site."""

from collections.abc import AsyncIterator
from typing import BinaryIO

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
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


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await run_in_threadpool(file.read, PIECE):
        yield piece
