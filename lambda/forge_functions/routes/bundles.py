"""Bundles and saved images, named by their SHA-256 and uploaded once; and the code of jobs."""

from enum import Enum
from typing import Annotated, Literal

from fastapi import Request
from forge_schema.model.bundles import list_digest
from forge_schema.model.fields import NUMERIC, Digest
from forge_schema.model.stored import BundleOffer, SegmentList, SegmentUpload, SignedUrl
from forge_schema.service.local import LocalService
from forge_schema.storage import keys
from pydantic import BaseModel, Field

from forge_functions.auth.authentication import AsSubmitter, AsViewer, JobInPath
from forge_functions.bodies import RequestBody
from forge_functions.errors import problems
from forge_functions.routes.guarded_route import Router
from forge_functions.services import Services, Shared

router = Router(prefix="/api/v1", responses=problems(401, 403))
BUNDLES: list[str | Enum] = ["bundles"]
# The limit of one upload to S3.
LARGEST = 5 << 30
# URLs for so many segments are signed at once: slow clients must use them before they expire.
SEGMENTS = 32
EXAMPLE = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


class Announced(RequestBody):
    """An object to upload: its SHA-256 and its size."""

    digest: Annotated[Digest, Field(examples=[EXAMPLE])]
    bytes: Annotated[int, Field(ge=1, le=LARGEST, examples=[40_960]), NUMERIC]


class AlreadyStored(BaseModel):
    """The object is stored already; nothing to do."""

    stored: Literal[True] = True


class UploadOffer(SignedUrl):
    """How to upload it: with this method and exactly these headers."""

    stored: Literal[False] = False


@router.post("/bundles", tags=BUNDLES)
def bundle(
    service: AsSubmitter, shared: Shared, request: Request, announced: Announced
) -> AlreadyStored | UploadOffer:
    """Tell whether the owner's bundle is stored, or how to upload it."""
    return _offer(keys.bundle(announced.digest), service, shared, request, announced)


@router.post("/bundles/segments", tags=BUNDLES)
def segments(
    service: AsSubmitter, shared: Shared, request: Request, bundle: SegmentList
) -> BundleOffer:
    """Store a large bundle, if the owner has uploaded its segments, or tell how to upload them.

    To be repeated after each upload until it is stored. A job names the answer's `digest`.
    """
    digest, missing = list_digest(bundle.dumped()), service.uploads.missing_segments(bundle)
    signer, owner = shared.signer(str(request.base_url)), service.caller.owner
    uploads = [
        SegmentUpload(
            sha256=segment.sha256,
            **signer.put(
                keys.segment(segment.sha256), size=segment.bytes, sha256=segment.sha256, owner=owner
            ).model_dump(),
        )
        for segment in missing[:SEGMENTS]
    ]
    return BundleOffer(
        digest=digest,
        stored=not missing,
        missing_bytes=sum(segment.bytes for segment in missing),
        uploads=uploads,
    )


@router.post("/images", tags=BUNDLES)
def image(
    service: AsSubmitter, shared: Shared, request: Request, announced: Announced
) -> AlreadyStored | UploadOffer:
    """Tell whether the owner's saved image (a tar) is stored, or how to upload it."""
    return _offer(keys.image(announced.digest), service, shared, request, announced)


@router.get("/queue/jobs/{job_id}/code/{digest}", tags=["jobs"], responses=problems(404))
def code(
    service: AsViewer, job_id: JobInPath, digest: Digest, shared: Shared, request: Request
) -> SignedUrl:
    """Return a URL of an object of the job's code: its bundle, a segment of it, or its diff."""
    return shared.signer(str(request.base_url)).get(service.code_key(job_id, digest))


def _offer(
    key: str, service: LocalService, shared: Services, request: Request, announced: Announced
) -> AlreadyStored | UploadOffer:
    if service.uploads.is_stored(key, announced.digest, size=announced.bytes):
        return AlreadyStored()
    signer = shared.signer(str(request.base_url))
    # An owner who has not uploaded it must prove to have the content by uploading it again. An
    # answer that depended on whether it exists would reveal that another owner has it.
    put = signer.put(key, size=announced.bytes, sha256=announced.digest, owner=service.caller.owner)
    return UploadOffer(**put.model_dump())
