"""Load the one image in a tar of `docker save`, under a name of Forge's own.

The names in the tar are removed, because they would replace those of local images.
"""

from __future__ import annotations

import hashlib
import io
import json
import posixpath
import tarfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from docker.errors import APIError

from forge_worker.runners.engines import kind_of
from forge_worker.runners.images.image import find
from forge_worker.runners.images.reference import parse
from forge_worker.runners.runner import ImageMissing, StartFailed

if TYPE_CHECKING:
    from pathlib import Path

    from docker import DockerClient

PIECE = 1 << 20
LARGEST_JSON = 16 << 20
MANIFEST = "manifest.json"
# Files that name images, or would be read instead of the manifest.
NAMING = {MANIFEST, "repositories", "index.json", "oci-layout"}
KINDS = {tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE}
NO_IMAGE = "payload does not match any of the supported image formats"
NO_ROOM = "no space left on device"

Progress = Callable[[int], None]


class SavedImageUnsound(ImageMissing):
    """A saved image does not match its digest, or is not a saved image."""


def load(client: DockerClient, tar: Path, name: str, progress: Progress) -> dict[str, Any]:
    """Load the image in a tar and tag it with the name; return its description.

    Raises:
        SavedImageUnsound: it is not a tar of exactly one image.
        StartFailed: the engine could not load it.
    """
    try:
        with tarfile.open(tar, "r:") as archive:
            entry, image_id = _the_image(archive)
            refusal = _load(client, _renamed(archive, {**entry, "RepoTags": [name]}, progress))
    except (tarfile.TarError, EOFError, ValueError, KeyError, TypeError) as error:
        raise unsound(f"it is not an uncompressed tar of docker save ({error})") from error
    if refusal and NO_ROOM not in refusal:
        raise unsound(f"the engine rejected it: {refusal}")
    image = find(client, parse(name))
    if refusal or image is None:
        raise StartFailed(f"the image was not loaded: {refusal or 'it is missing afterwards'}")
    # containerd's ids are those of manifests, not of configurations.
    if image["Id"] != image_id and not kind_of(client.info()).containerd:
        raise StartFailed(f"the engine has another image under the name {name}")
    return image


def unsound(why: str) -> SavedImageUnsound:
    """Return the error for an unusable saved image."""
    return SavedImageUnsound(
        f"the saved image cannot be used: {why}",
        hint="save it again with `docker save IMAGE > image.tar`, and submit it again",
    )


def _the_image(archive: tarfile.TarFile) -> tuple[dict[str, Any], str]:
    """Return the manifest's entry for the one image, and the image's id."""
    entries = json.loads(_read(archive, MANIFEST))
    if len(entries) != 1:
        raise unsound(f"it contains {len(entries)} images instead of one")
    entry: dict[str, Any] = entries[0]
    config = _read(archive, str(entry["Config"]))
    return entry, f"sha256:{hashlib.sha256(config).hexdigest()}"


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.getmember(name)
    file = archive.extractfile(member) if member.isreg() else None
    if file is None or member.size > LARGEST_JSON:
        raise unsound(f"its {name} is not a small file")
    return file.read()


def _load(client: DockerClient, pieces: Iterator[bytes]) -> str:
    """Load a tar; return the engine's error, or ""."""
    refusal = ""
    try:
        steps = client.api.load_image(pieces)  # type: ignore[no-untyped-call]  # the stubs lack types
        for step in steps:
            refusal = refusal or step.get("error", "") or step.get("message", "")
    except APIError as error:
        # Podman's answer, where Docker's has status 200.
        refusal = str(error.explanation or error)
        if NO_IMAGE not in refusal:
            raise
    return refusal


def _renamed(
    archive: tarfile.TarFile, entry: dict[str, Any], progress: Progress
) -> Iterator[bytes]:
    """Rewrite the tar with a new manifest, so that the engine reads exactly what was checked."""
    for member in archive:
        name = posixpath.normpath(member.name)
        if name in NAMING:
            continue
        if member.type not in KINDS or name.startswith(("/", "../")) or name == "..":
            raise unsound(f"it contains an unexpected entry {member.name!r}")
        yield _head(name, member)
        if member.isreg():
            yield from _body(archive, member, progress)
    manifest = json.dumps([entry]).encode()
    last = tarfile.TarInfo(MANIFEST)
    last.size = len(manifest)
    rest = -len(manifest) % tarfile.BLOCKSIZE + 2 * tarfile.BLOCKSIZE
    yield last.tobuf(tarfile.PAX_FORMAT) + manifest + bytes(rest)


def _head(name: str, member: tarfile.TarInfo) -> bytes:
    head = tarfile.TarInfo(name)
    head.type, head.linkname = member.type, member.linkname
    head.size = member.size if member.isreg() else 0
    head.mode = 0o755 if member.isdir() else 0o644
    return head.tobuf(tarfile.PAX_FORMAT)


def _body(archive: tarfile.TarFile, member: tarfile.TarInfo, progress: Progress) -> Iterator[bytes]:
    file = archive.extractfile(member) or io.BytesIO()
    came = 0
    while piece := file.read(PIECE):
        came += len(piece)
        progress(len(piece))
        yield piece
    if came != member.size:
        raise unsound(f"{member.name} is truncated")
    yield bytes(-came % tarfile.BLOCKSIZE)
