"""Stored objects on their way to the reader: unpacked and verified."""

import hashlib
import secrets
from pathlib import Path

import zstandard
from forge_schema.storage import Store

from forge_client.backend import Progress
from forge_client.errors import ClientError
from forge_client.records import Artifact, LogChunk


def unpacked(chunk: LogChunk, stored: bytes) -> bytes:
    """Return a log chunk's output.

    Raises:
        ClientError: the object is not what the worker stored.
    """
    try:
        data = zstandard.ZstdDecompressor().decompress(stored, max_output_size=chunk.bytes)
    except zstandard.ZstdError:
        data = b""
    if len(data) != chunk.bytes or hashlib.sha256(data).hexdigest() != chunk.sha256:
        raise _corrupt(f"the log chunk {chunk.key}")
    return data


def fetch(store: Store, artifact: Artifact, path: Path, progress: Progress | None) -> None:
    """Write an artifact to `path`, which appears whole and verified or not at all.

    Raises:
        ClientError: the object is not what the job left.
    """
    partial = path.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        store.get_file(artifact.key, partial, progress=progress)
        with partial.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != artifact.sha256:
            raise _corrupt(f"the artifact {artifact.path}")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _corrupt(what: str) -> ClientError:
    return ClientError(
        f"{what} is not what was stored: its checksum differs",
        hint="something altered it in the store; run the job again",
        code="object_corrupt",
    )
