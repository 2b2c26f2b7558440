"""Style sheets and scripts."""

from fastapi import APIRouter, HTTPException, Request, Response

from forge_functions.dashboard.assets import assets

router = APIRouter()
FOR_GOOD = "public, max-age=31536000, immutable"


@router.get("/static/{digest}/{path:path}")
def static(request: Request, digest: str, path: str) -> Response:
    """Return an asset; under another hash than its own, it is kept by nobody."""
    found = assets().get(path)
    if found is None:
        raise HTTPException(404, "there is no such file")
    # While servers of two versions answer, one may be asked for what the other's page names.
    headers = {"Cache-Control": FOR_GOOD if digest == found.digest else "no-cache"}
    headers["Vary"] = "Accept-Encoding"
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(found.content, media_type=found.kind, headers=headers)
    headers["Content-Encoding"] = "gzip"
    return Response(found.packed, media_type=found.kind, headers=headers)
