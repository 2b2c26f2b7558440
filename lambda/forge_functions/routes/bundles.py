"""Bundles and saved images: what jobs bring along, named by its SHA-256, uploaded once."""

from typing import Annotated, Literal

from fastapi import APIRouter, Request
from forge_schema.storage import keys
from forge_schema.wire_fields import NUMERIC, Digest
from pydantic import BaseModel, Field

from forge_functions.auth.caller import Submitter
from forge_functions.bodies import Body
from forge_functions.errors import problems
from forge_functions.services import Services, Shared

router = APIRouter(prefix="/api", tags=["bundles"], responses=problems(401, 403))
# What S3 takes in one request.
LARGEST = 5 << 30
EXAMPLE = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


class Announced(Body):
    """An object that somebody has: its SHA-256 and its size."""

    digest: Annotated[Digest, Field(examples=[EXAMPLE])]
    bytes: Annotated[int, Field(ge=1, le=LARGEST, examples=[40_960]), NUMERIC]


class Stored(BaseModel):
    """The object is there; nothing is to be done."""

    stored: Literal[True] = True


class Upload(BaseModel):
    """How to store it: send it so, with exactly these headers; 412 says that it is there now."""

    stored: Literal[False] = False
    url: str
    method: str
    headers: dict[str, str]
    expires_in_s: int


@router.post("/bundles")
def bundle(_who: Submitter, shared: Shared, request: Request, said: Announced) -> Stored | Upload:
    """Tell whether a bundle is stored, or how to store it."""
    return _offer(keys.bundle(said.digest), shared, request, said)


@router.post("/images")
def image(_who: Submitter, shared: Shared, request: Request, said: Announced) -> Stored | Upload:
    """Tell whether a saved image, a tar, is stored, or how to store it."""
    return _offer(keys.image(said.digest), shared, request, said)


def _offer(key: str, shared: Services, request: Request, said: Announced) -> Stored | Upload:
    if shared.store.size(key) is not None:
        return Stored()
    signer = shared.signer(str(request.base_url))
    put = signer.put(key, size=said.bytes, sha256=said.digest, if_absent=True)
    return Upload(
        url=put.url, method=put.method, headers=put.headers, expires_in_s=put.expires_in_s
    )
