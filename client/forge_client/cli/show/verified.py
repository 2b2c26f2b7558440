"""Stored objects on their way to the reader: unpacked, verified, written whole or not at all."""

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zstandard
from forge_schema.model.stored import LogChunk

from forge_client.errors import ClientError

# It is unpacked in memory, and its size is what its worker says. Workers make them of 4 MiB.
LARGEST_CHUNK = 16 << 20


def unpacked(chunk: LogChunk, stored: bytes) -> bytes:
    """Return a log chunk's output.

    Raises:
        ClientError: the object is not what the worker stored.
    """
    if chunk.bytes > LARGEST_CHUNK:
        raise corrupt(f"the log chunk {chunk.key}")
    try:
        unpacker = zstandard.ZstdDecompressor(max_window_size=LARGEST_CHUNK)
        with unpacker.stream_reader(stored) as reader:
            # One byte over what it is to be, whatever the frame says of itself.
            data = reader.read(chunk.bytes + 1)
    except zstandard.ZstdError:
        data = b""
    if len(data) != chunk.bytes or hashlib.sha256(data).hexdigest() != chunk.sha256:
        raise corrupt(f"the log chunk {chunk.key}")
    return data


@contextmanager
def arriving(path: Path, sha256: str, what: str) -> Iterator[Path]:
    """Lend a file to fill; it becomes `path` when the block ends and its digest is right.

    Raises:
        ClientError: the digest is another.
    """
    partial = path.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        yield partial
        with partial.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != sha256:
            raise corrupt(what)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def corrupt(what: str) -> ClientError:
    """Return that an object is not what was stored."""
    return ClientError(
        f"{what} is not what was stored: its checksum differs",
        hint="something altered it in the store; run the job again",
        code="object_corrupt",
    )
