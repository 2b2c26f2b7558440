"""Objects of a file store through forge-server: large, many at once, cut off, away."""

from __future__ import annotations

import hashlib
import os
import socket
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest
from forge_functions.middleware import requests
from forge_schema.storage import open_store
from forge_schema.storage.keys import RESERVED
from structlog.testing import capture_logs
from support.http.server import served, server_settings
from support.store.signed_doors import NO_DATABASE, Request, ServerDoor, get, put, server_door

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.waiting import Eventually

MIB = 1 << 20
LARGE = 64 * MIB
# A few pieces on each side; the object itself is four times as much.
FLAT = 16 * MIB
PIECE = bytes(range(256)) * 256
CROWD = 60  # more than the threads that serve requests


@pytest.fixture
def door(tmp_path: Path) -> Iterator[ServerDoor]:
    with server_door((tmp_path / "store").as_uri()) as opened:
        yield opened


def files(door: ServerDoor) -> list[str]:
    """List what lies in the store's folder, finished or not."""
    root = Path(urlsplit(door.store.url).path)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def large_pieces() -> Iterator[bytes]:
    for _ in range(LARGE // len(PIECE)):
        yield PIECE


def large_digest() -> str:
    digest = hashlib.sha256()
    for piece in large_pieces():
        digest.update(piece)
    return digest.hexdigest()


@contextmanager
def begun(request: Request, sent: bytes) -> Iterator[socket.socket]:
    """Send a request's head and a part of its body."""
    url = urlsplit(request.url)
    headers = {"Host": url.netloc, **request.headers}
    head = [f"{request.method} {url.path}?{url.query} HTTP/1.1"]
    head += [f"{name}: {value}" for name, value in headers.items()]
    with socket.create_connection((url.hostname or "", url.port or 0), timeout=60) as connection:
        connection.sendall("\r\n".join([*head, "", ""]).encode() + sent)
        yield connection


def status(connection: socket.socket) -> int:
    return int(connection.recv(4096).split()[1])


def test_a_large_object_passes_in_little_memory(door: ServerDoor) -> None:
    signed = door.signer.put("large", size=LARGE, sha256=large_digest())
    tracemalloc.start()
    try:
        answer = httpx.put(signed.url, headers=signed.headers, content=large_pieces(), timeout=120)
        assert answer.status_code == 200
        digest = hashlib.sha256()
        with httpx.stream("GET", door.signer.get("large").url, timeout=120) as reading:
            assert reading.headers["Content-Length"] == str(LARGE)
            for piece in reading.iter_raw():
                digest.update(piece)
        assert digest.hexdigest() == large_digest()
        assert tracemalloc.get_traced_memory()[1] < FLAT
    finally:
        tracemalloc.stop()
    assert files(door) == ["large"]


def test_a_large_body_that_is_refused_at_once_still_has_its_answer(door: ServerDoor) -> None:
    signed = door.aged(901).put("large", size=LARGE, sha256=large_digest())
    answer = httpx.put(signed.url, headers=signed.headers, content=large_pieces(), timeout=120)
    assert (answer.status_code, door.refusal(answer)) == (403, "url_expired")
    assert files(door) == []


def test_a_body_without_end_is_stopped(door: ServerDoor) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield PIECE

    signed = door.signer.put("mine", size=5, sha256=hashlib.sha256(b"12345").hexdigest())
    answer = httpx.put(signed.url, content=endless(), timeout=60)
    assert (answer.status_code, door.refusal(answer)) == (413, "too_large")
    assert files(door) == []


def test_an_upload_that_is_cut_off_leaves_nothing(door: ServerDoor, eventually: Eventually) -> None:
    content = os.urandom(3 * MIB)
    with capture_logs() as logs:
        with begun(put(door.signer, "mine", content), content[: 2 * MIB]):
            eventually(lambda: files(door))
            assert door.store.size("mine") is None
        eventually(lambda: logs)
    assert files(door) == []
    # Nobody is at fault here, so only the request is logged.
    assert [(line["event"], line["status"]) for line in logs] == [("request", 422)]


def test_what_follows_an_upload_on_its_connection_is_the_next_request(
    door: ServerDoor, eventually: Eventually
) -> None:
    content = os.urandom(3 * MIB)
    url = urlsplit(door.signer.get("mine").url)
    following = f"GET {url.path}?{url.query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with begun(put(door.signer, "mine", content), content[:MIB]) as connection:
        eventually(lambda: files(door))
        connection.sendall(content[MIB:] + following.encode())
        answers = b"".join(iter(lambda: connection.recv(MIB), b""))
    assert answers.startswith(b"HTTP/1.1 200 ")
    assert answers.endswith(b"\r\n\r\n" + content)


def test_an_upload_that_stalls_is_ended(
    door: ServerDoor, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(requests, "PIECE_WITHIN_S", 0.2)
    with begun(put(door.signer, "mine", b"12345"), b"123") as connection:
        assert status(connection) == 408
    eventually(lambda: files(door) == [])


def test_a_download_that_is_cut_off_leaves_no_open_file(
    door: ServerDoor, eventually: Eventually
) -> None:
    door.store.put("large", bytes(LARGE))

    def is_open() -> bool:
        links = Path("/proc/self/fd").iterdir()
        return any(str(link.resolve()).endswith("store/large") for link in links)

    with begun(get(door.signer, "large"), b"") as connection:
        assert status(connection) == 200
        assert is_open()
    eventually(lambda: not is_open())


def test_slow_uploads_delay_no_other_request(door: ServerDoor, eventually: Eventually) -> None:
    door.store.put("there", b"at once")
    bodies = {f"slow/{number}": os.urandom(2000 + number) for number in range(CROWD)}
    with ExitStack() as stack:
        slow = {
            key: stack.enter_context(begun(put(door.signer, key, body), body[:1000]))
            for key, body in bodies.items()
        }
        eventually(lambda: len([f for f in files(door) if f.startswith(RESERVED)]) == CROWD)
        assert get(door.signer, "there").send().content == b"at once"
        assert put(door.signer, "new", b"at once").send().status_code == 200
        for key, connection in slow.items():
            connection.sendall(bodies[key][1000:])
        assert {status(connection) for connection in slow.values()} == {200}
    assert {key: door.store.get(key) for key in bodies} == bodies
    assert files(door) == sorted([*bodies, "new", "there"])


def test_a_body_that_is_not_needed_is_not_waited_for(door: ServerDoor) -> None:
    door.store.put("mine", b"there")
    with begun(put(door.signer, "mine", b"12345", if_absent=True), b"") as connection:
        assert status(connection) == 412
    assert files(door) == ["mine"]


def test_of_several_who_put_one_absent_object_one_wins(door: ServerDoor) -> None:
    bodies = [os.urandom(MIB) for _ in range(8)]
    requests = [put(door.signer, "mine", body, if_absent=True) for body in bodies]
    with ThreadPoolExecutor(len(requests)) as pool:
        answers = list(pool.map(lambda request: request.send().status_code, requests))
    assert sorted(answers) == [200] + [412] * 7
    assert door.store.get("mine") == bodies[answers.index(200)]


def test_an_object_is_never_a_page_of_this_site(door: ServerDoor) -> None:
    door.store.put("page.html", b"<script>alert(1)</script>")
    headers = get(door.signer, "page.html").send().headers
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["Content-Disposition"] == "attachment"
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_an_absent_object_does_not_tell_where_the_store_lies(
    door: ServerDoor, tmp_path: Path
) -> None:
    answer = get(door.signer, "mine").send()
    assert (answer.status_code, door.refusal(answer)) == (404, "object_missing")
    assert str(tmp_path) not in answer.text


def test_a_store_that_is_away_is_not_the_callers_fault(tmp_path: Path) -> None:
    with server_door((tmp_path / "mount" / "store").as_uri()) as door:
        answer = put(door.signer, "mine", b"12345").send()
        assert (answer.status_code, door.refusal(answer)) == (503, "store_unreachable")
        assert str(tmp_path) not in answer.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["", "%0A", "a%00", "../a", "%2e%2e/a", ".forge-tmp/a", "a//b"])
def test_an_invalid_key_opens_nothing(door: ServerDoor, key: str) -> None:
    query = get(door.signer, "mine").url.partition("?")[2]
    with begun(
        Request("GET", f"{door.base_url}/api/v1/objects/{key}?{query}", {}), b""
    ) as connection:
        assert status(connection) == 403


def test_a_server_whose_objects_lie_in_s3_has_none_here(tmp_path: Path) -> None:
    elsewhere = open_store((tmp_path / "store").as_uri())
    with served(server_settings(NO_DATABASE, "s3://bucket/forge?region=us-east-1")) as base_url:
        door = ServerDoor(elsewhere, base_url, b"any")
        answer = get(door.signer, "mine").send()
        assert (answer.status_code, door.refusal(answer)) == (404, "not_found")
