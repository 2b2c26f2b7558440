"""Files in chunks: sent in small pieces, and broken off before the last one of a damaged chunk."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import socket
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest
from forge_functions import objects
from forge_functions.middleware.slow_clients import GuardedProtocol
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
from support.http.server import listening

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.types import Receive, Scope, Send

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


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file that fits into no socket's buffer."""
    path = tmp_path / "large"
    path.write_bytes(os.urandom(16 << 20))
    return path


@pytest.fixture
def sending(large: Path) -> Iterator[str]:
    """A server that sends the file, of which 16 MiB are announced; yields its URL."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        pieces = asyncio.Semaphore(2)
        services = SimpleNamespace(object_pieces=pieces)
        scope["app"] = SimpleNamespace(state=SimpleNamespace(services=services))
        await objects.ObjectResponse(large.open("rb"), 16 << 20)(scope, receive, send)

    with listening(app, http=GuardedProtocol, lifespan="off") as url:
        yield url


@pytest.mark.parametrize("able", [True, False], ids=["by the kernel", "where it cannot"])
def test_a_file_arrives_whole_and_the_connection_serves_again(
    sending: str, large: Path, monkeypatch: pytest.MonkeyPatch, *, able: bool
) -> None:
    asked: list[int] = []
    sendfile = os.sendfile

    def watched(line: int, file: int, offset: int, count: int) -> int:
        asked.append(line)
        if not able:
            raise OSError(errno.EINVAL, "not on this file system")
        return sendfile(line, file, offset, count)

    monkeypatch.setattr(os, "sendfile", watched)
    with httpx.Client() as client:
        for _ in range(2):
            assert client.get(sending).content == large.read_bytes()
    assert asked


def test_an_answer_whose_file_became_shorter_is_broken_off(sending: str, large: Path) -> None:
    os.truncate(large, 5 << 20)
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(sending)


def test_clients_that_stop_reading_hold_up_nobody(sending: str, large: Path) -> None:
    place = urlsplit(sending)
    with ExitStack() as held:
        for _ in range(3):
            address = (place.hostname or "", place.port or 0)
            line = held.enter_context(socket.create_connection(address))
            line.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert line.recv(9) == b"HTTP/1.1 "
        assert httpx.get(sending).content == large.read_bytes()
    # They are gone, so the server can stop: it waits for the answers that are under way.


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
