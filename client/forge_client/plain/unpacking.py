"""The output in a stored chunk of a log, and what may be wrong with a stored file."""

import hashlib
from typing import TYPE_CHECKING

from forge_client.errors import ClientError

if TYPE_CHECKING:
    from forge_schema.model.stored import LogChunk

# A chunk is unpacked in memory, and its size is the worker's claim. Workers make chunks of 4 MiB.
LARGEST_CHUNK = 16 << 20
# What is wrong with one file, while others can still be fetched.
OF_ONE_FILE = {
    *("object_corrupt", "object_missing", "checkpoint_unsound"),
    *("artifact_path_refused", "file_unwritable"),
}


def unpacked(chunk: "LogChunk", stored: bytes) -> bytes:
    """Return a log chunk's output; `ClientError` if the object is corrupt."""
    # Most commands read no log.
    from forge_schema.zstd import ZstdError, first_bytes  # noqa: PLC0415

    if chunk.bytes > LARGEST_CHUNK:
        raise corrupt(f"the log chunk {chunk.key}")
    try:
        # One byte more than expected, so that a longer one differs.
        data = first_bytes(stored, chunk.bytes + 1, LARGEST_CHUNK)
    except ZstdError:
        data = b""
    if len(data) != chunk.bytes or hashlib.sha256(data).hexdigest() != chunk.sha256:
        raise corrupt(f"the log chunk {chunk.key}")
    return data


def corrupt(what: str) -> ClientError:
    """Return the error for a corrupt object."""
    return ClientError(
        f"{what} is not what was stored: its checksum differs",
        hint="something has changed it in the store; run the job again",
        code="object_corrupt",
    )
