"""Objects of a file store, at URLs that the server signed."""

import os
from http import HTTPStatus
from typing import Annotated, NamedTuple

from fastapi import Depends, Query, Request, Response
from fastapi.concurrency import contextmanager_in_threadpool, run_in_threadpool
from forge_schema.model.stored import in_chunks
from forge_schema.storage import ObjectMissing
from forge_schema.storage.file_store import FileStore
from forge_schema.storage.manifest import chunk_list
from forge_schema.storage.signed import PATH, Permit, ServerSigner
from pydantic import BaseModel, ConfigDict, Field

from forge_functions.errors import Refused, problems
from forge_functions.lazy_routes import LazyRouter
from forge_functions.middleware.requests import vouch
from forge_functions.objects import AssembledResponse, ObjectResponse, Upload
from forge_functions.services import Services, Shared, services

router = LazyRouter(prefix=PATH.rstrip("/"), tags=["objects"], responses=problems(403, 404))
HEX = "^[0-9a-f]{64}$"
BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
BODY = {"requestBody": {"required": True, "content": BYTES}}


class Signed(BaseModel):
    """The signed query of a URL."""

    model_config = ConfigDict(extra="forbid")

    expires: int = Field(description="seconds since 1970")
    signature: str = Field(pattern=HEX)


class SignedWrite(Signed):
    """The signed query of an upload's URL."""

    size: int = Field(ge=0, description="bytes")
    sha256: str = Field(pattern=HEX)
    if_absent: bool = False
    owner: str = ""


class Files(NamedTuple):
    """The file store and the signer of its URLs."""

    store: FileStore
    signer: ServerSigner


def check(request: Request, signer: ServerSigner, permit: Permit, signature: str) -> None:
    """Check that a request was signed here and has not expired.

    Raises:
        Refused: 403.
    """
    if not signer.is_signed(permit, signature):
        raise _forbidden(
            "signature_invalid",
            "this request differs from the signed one",
            hint="send the method, the URL and the headers as the server gave them",
        )
    if signer.is_over(permit):
        raise _forbidden("url_expired", "the URL has expired", hint="ask the server for a new one")
    vouch(request)


def files(shared: Annotated[Services, Depends(services)]) -> Files:
    """Return the file store. A FastAPI dependency.

    Raises:
        Refused: 404 if the objects are in S3.
    """
    store, signer = shared.store, shared.signer("")
    if isinstance(store, FileStore) and isinstance(signer, ServerSigner):
        return Files(store, signer)
    raise Refused(HTTPStatus.NOT_FOUND, "not_found", "this server's store has its own URLs")


@router.get("/{key:path}", response_class=Response, responses={200: {"content": BYTES}})
def read(
    key: str, request: Request, signed: Annotated[Signed, Query()], shared: Shared
) -> Response:
    """Send an object; instead of a list of chunks, the file that they are, from any store."""
    permit = Permit("GET", key, signed.expires)
    try:
        if in_chunks(key):
            check(request, shared.own_signer(""), permit, signed.signature)
            return AssembledResponse(shared.store, chunk_list(shared.store, key))
        own = files(shared)
        check(request, own.signer, permit, signed.signature)
        file = own.store.open(key)
    except ObjectMissing as error:
        # Not the store's own message, which reveals its location.
        raise Refused(HTTPStatus.NOT_FOUND, error.code, "there is no such object") from error
    return ObjectResponse(file, os.fstat(file.fileno()).st_size)


@router.put("/{key:path}", response_class=Response, responses=problems(412), openapi_extra=BODY)
async def write(
    key: str,
    request: Request,
    signed: Annotated[SignedWrite, Query()],
    files: Annotated[Files, Depends(files)],
    shared: Shared,
) -> Response:
    """Store an object completely, with the signed size and SHA-256, or not at all."""
    asked = signed.model_dump(exclude={"signature"})
    permit = Permit("PUT", key, **asked)
    check(request, files.signer, permit, signed.signature)
    # Checked before the body arrives, which may be large.
    if permit.if_absent and await run_in_threadpool(files.store.size, key) is not None:
        raise _exists()
    arriving = files.store.incoming(key, if_absent=permit.if_absent)
    async with contextmanager_in_threadpool(arriving) as incoming:
        await Upload(permit, incoming).run(request)
        if permit.owner:
            await run_in_threadpool(shared.note_upload, permit.owner, permit.sha256)
        if not await run_in_threadpool(incoming.place):
            raise _exists()
    return Response()


def _exists() -> Refused:
    return Refused(HTTPStatus.PRECONDITION_FAILED, "object_exists", "the object already exists")


def _forbidden(code: str, message: str, *, hint: str) -> Refused:
    return Refused(HTTPStatus.FORBIDDEN, code, message, hint=hint)
