"""Write the body of a signed PUT into the store."""

import hashlib
from http import HTTPStatus

from fastapi.concurrency import run_in_threadpool
from forge_schema.model.quantities import counted
from forge_schema.storage.file_store import Incoming
from forge_schema.storage.signed import Permit
from starlette.requests import ClientDisconnect, Request

from forge_functions.errors import Refused

TOGETHER = 1 << 20  # memory used by one upload


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
        held: list[bytes] = []
        kept = 0
        try:
            async for piece in request.stream():
                self._count(piece)
                held.append(piece)
                if self._came - kept >= TOGETHER:
                    await run_in_threadpool(self._keep, held)
                    held, kept = [], self._came
        except ClientDisconnect as error:
            raise self._too_short() from error
        await run_in_threadpool(self._keep, held)
        self._check_whole()

    def _check_announced(self, length: str | None) -> None:
        if length is None or int(length) == self._permit.size:
            return
        raise self._too_large() if int(length) > self._permit.size else self._too_short()

    def _count(self, piece: bytes) -> None:
        self._came += len(piece)
        if self._came > self._permit.size:
            raise self._too_large()

    def _keep(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self._digest.update(piece)
            self._incoming.write(piece)

    def _check_whole(self) -> None:
        if self._came < self._permit.size:
            raise self._too_short()
        if self._digest.hexdigest() != self._permit.sha256:
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
