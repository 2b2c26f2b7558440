"""Style sheets and scripts."""

from fastapi import APIRouter, HTTPException, Request, Response

from forge_functions.dashboard.assets import assets

router = APIRouter()
FOR_GOOD = "public, max-age=31536000, immutable"


@router.get("/static/{digest}/{path:path}")
def static(request: Request, digest: str, path: str) -> Response:
    """Return an asset. With a hash other than its own, it may not be cached."""
    found = assets().get(path)
    if found is None:
        raise HTTPException(404, "there is no such file")
    # During an upgrade, a server may be asked for an asset of another version's page.
    headers = {"Cache-Control": FOR_GOOD if digest == found.digest else "no-cache"}
    headers["Vary"] = "Accept-Encoding"
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(found.content, media_type=found.kind, headers=headers)
    headers["Content-Encoding"] = "gzip"
    return Response(found.packed, media_type=found.kind, headers=headers)
