"""Large files as chunks of a fixed size, each an object that is named by its SHA-256."""

import hashlib
from collections.abc import Iterable

CHUNK_BYTES = 32 << 20
# Clients hold a chunk in memory, so nobody may name a larger one than workers make.
MOST_CHUNK_BYTES = CHUNK_BYTES


def tree_digest(chunks: Iterable[str]) -> str:
    """Return the digest of a file in chunks: the SHA-256 of the chunks' SHA-256, one by one."""
    return hashlib.sha256(b"".join(map(bytes.fromhex, chunks))).hexdigest()
