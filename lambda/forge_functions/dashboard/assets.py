"""Style sheets and scripts, each under the hash of its content: a browser keeps them for good."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

# No more than these are served.
TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Asset:
    """A file that pages load."""

    kind: str
    content: bytes
    packed: bytes
    digest: str


@cache
def assets() -> dict[str, Asset]:
    """Return every asset by its path."""
    return dict(_found(files("forge_functions.dashboard") / "static", ""))


@cache
def address(path: str) -> str:
    """Return where a page finds an asset.

    Raises:
        KeyError: there is none.
    """
    return f"/static/{assets()[path].digest}/{path}"


def _found(folder: Traversable, before: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for entry in folder.iterdir():
        path = before + entry.name
        if entry.is_dir():
            found += _found(entry, f"{path}/")
        elif kind := TYPES.get(entry.name.rpartition(".")[2]):
            found.append((path, _asset(kind, entry.read_bytes())))
    return found


def _asset(kind: str, content: bytes) -> Asset:
    digest = hashlib.sha256(content).hexdigest()[:16]
    return Asset(kind, content, gzip.compress(content, mtime=0), digest)
