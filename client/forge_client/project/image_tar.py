"""An image saved with `docker save`, identified by the file's SHA-256."""

import hashlib
import re
import tarfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from forge_client.errors import InvalidInput
from forge_client.uploads import ImageTar, Progress

PIECE = 1 << 20
DIGEST = re.compile("[0-9a-f]{64}")
MANIFEST = "manifest.json"

Bar = Callable[[str, int], AbstractContextManager[Progress]]


def read(path: Path, bar: Bar) -> ImageTar:
    """Read a saved image once, without keeping it in memory.

    Raises:
        InvalidInput: there is no such file, or `docker save` did not write it.
    """
    try:
        _check(path)
        size = path.stat().st_size
        digest = hashlib.sha256()
        with bar("reading the image", size) as progress, path.open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
                progress(len(piece))
    except OSError as error:
        raise _unfit(path, f"cannot be read: {error.strerror or error}") from error
    return ImageTar(digest.hexdigest(), path, size)


def _check(path: Path) -> None:
    try:
        with tarfile.open(path, "r:") as archive:
            if MANIFEST not in archive.getnames():
                raise _unfit(path, f"contains no {MANIFEST}, so docker save did not write it")
    except tarfile.TarError as error:
        raise _unfit(path, "is not an uncompressed tar; uncompress it first") from error


def _unfit(path: Path, what: str) -> InvalidInput:
    return InvalidInput(f"{path} {what}", hint="create it with: docker save IMAGE > image.tar")
