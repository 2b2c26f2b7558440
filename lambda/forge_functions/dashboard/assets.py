"""Style sheets and scripts at paths with their hash, so that browsers cache them for good."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import HTTPException, Request, Response

from forge_functions.lazy_routes import LazyRouter

# Only these types are served.
TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

router = LazyRouter()
FOR_GOOD = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class Asset:
    """A static file that pages load."""

    kind: str
    content: bytes
    packed: bytes
    digest: str


@cache
def assets() -> dict[str, Asset]:
    """Return all assets by path."""
    return dict(_assets(files("forge_functions.dashboard") / "static", ""))


@cache
def address(path: str) -> str:
    """Return the path of an asset.

    Raises:
        KeyError: it does not exist.
    """
    return f"/static/{assets()[path].digest}/{path}"


def _assets(folder: Traversable, before: str) -> list[tuple[str, Asset]]:
    entries: list[tuple[str, Asset]] = []
    for entry in folder.iterdir():
        path = before + entry.name
        if entry.is_dir():
            entries += _assets(entry, f"{path}/")
        elif kind := TYPES.get(entry.name.rpartition(".")[2]):
            entries.append((path, _asset(kind, entry.read_bytes())))
    return entries


def _asset(kind: str, content: bytes) -> Asset:
    digest = hashlib.sha256(content).hexdigest()[:16]
    return Asset(kind, content, gzip.compress(content, mtime=0), digest)


@router.get("/static/{digest}/{path:path}")
def static(request: Request, digest: str, path: str) -> Response:
    """Return an asset. With a hash other than its own, it may not be cached."""
    asset = assets().get(path)
    if asset is None:
        raise HTTPException(404, "there is no such file")
    # During an upgrade, a server may be asked for an asset of another version's page.
    headers = {"Cache-Control": FOR_GOOD if digest == asset.digest else "no-cache"}
    headers["Vary"] = "Accept-Encoding"
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(asset.content, media_type=asset.kind, headers=headers)
    headers["Content-Encoding"] = "gzip"
    return Response(asset.packed, media_type=asset.kind, headers=headers)
