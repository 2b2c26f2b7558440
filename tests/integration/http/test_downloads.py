"""Files in chunks: sent in small pieces, and broken off before the last one of a damaged chunk."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from forge_functions import objects
from forge_schema.storage import ObjectMissing, ObjectTooLarge
from forge_schema.storage.file_store import FileStore
from forge_schema.storage.manifest import (
    CHUNK_BYTES,
    MOST_CHUNK_BYTES,
    CheckpointUnsound,
    Extent,
    chunk_list,
)
from forge_schema.storage.store import small

if TYPE_CHECKING:
    from pathlib import Path

PIECE = 128 << 10
CHUNK = 5 * PIECE + 7


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path)


def extent(content: bytes, key: str = "a") -> Extent:
    return Extent(0, len(content), hashlib.sha256(content).hexdigest(), key)


def test_no_chunk_is_held_whole(store: FileStore) -> None:
    content = bytes(range(256)) * (CHUNK // 256)
    store.put("a", content)
    pieces = list(objects._verified(store, extent(content)))
    assert b"".join(pieces) == content
    assert max(map(len, pieces)) <= PIECE


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(b"x" * (CHUNK - 1), id="shorter"),
        pytest.param(b"x" * (CHUNK + 1), id="longer"),
        pytest.param(b"x" * (CHUNK - 1) + b"y", id="altered"),
        pytest.param(b"", id="empty"),
    ],
)
def test_of_a_damaged_chunk_the_end_is_never_sent(store: FileStore, stored: bytes) -> None:
    store.put("a", stored)
    sent: list[bytes] = []
    with pytest.raises(CheckpointUnsound):
        sent.extend(objects._verified(store, extent(b"x" * CHUNK)))
    assert sum(map(len, sent)) < CHUNK


def test_what_is_read_into_memory_is_small(store: FileStore) -> None:
    store.put("a", b"12345")
    assert small(store, "a", 5) == b"12345"
    with pytest.raises(ObjectTooLarge, match="5 B; 4 B are read"):
        small(store, "a", 4)
    with pytest.raises(ObjectMissing):
        small(store, "b", 4)


def test_lists_name_only_chunks_of_the_size_that_workers_make(store: FileStore) -> None:
    assert MOST_CHUNK_BYTES == CHUNK_BYTES
    key = "jobs/7/1-1/chunked/model"
    store.put(key, b"{" + b" " * (5 << 20) + b"}")
    with pytest.raises(CheckpointUnsound):
        chunk_list(store, key)
