"""Deliberately slow clients: the server drops them, and answers everybody else."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from select import select
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest
from forge_functions import server
from forge_functions.middleware import requests, slow_clients
from forge_functions.settings import FunctionsSettings
from forge_functions.streams.hub import LEAVING, Hub
from forge_schema.model.states import Role
from structlog.testing import capture_logs
from support.http.api import Api
from support.http.guest import Guest
from support.http.http_worker import RawWorker, raw_worker
from support.http.server import listening, quick_app, server_settings, serving
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.types import Receive, Scope, Send
    from support.queue.rig import Rig

GUARDED: dict[str, Any] = {
    "http": slow_clients.GuardedProtocol,
    "ws": slow_clients.GuardedWebSocket,
}
JSON = {"Content-Type": "application/json"}
HALF = b"GET /health HTTP/1.1\r\nHost: forge\r\nX-Slow: "
END = b"\r\n\r\n"


@pytest.fixture
def api(rig: Rig, tmp_path: Path) -> Iterator[Api]:
    app = quick_app(server_settings(rig.url, (tmp_path / "store").as_uri()))
    with serving(app, http=slow_clients.GuardedProtocol) as url:
        api = Api(app, url, rig)
        with api.http:
            yield api


def connect(url: str, sent: bytes) -> socket.socket:
    place = urlsplit(url)
    made = socket.create_connection((place.hostname or "", place.port or 0), 60)
    made.sendall(sent)
    return made


def is_dropped(connection: socket.socket) -> bool:
    """Send a little more, as a slow client does, and tell whether the server has hung up."""
    try:
        connection.sendall(b"x")
        connection.settimeout(0.05)
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_of_many_half_sent_requests_the_oldest_are_dropped(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_clients, "MOST_OF_ADDRESS", 20)
    monkeypatch.setattr(slow_clients, "HEAD_WITHIN_S", 600)
    with ExitStack() as held:
        slow = [held.enter_context(connect(api.url, HALF)) for _ in range(60)]
        for connection in slow[:40]:
            eventually(partial(is_dropped, connection))
        assert httpx.get(f"{api.url}/health", timeout=60).is_success
        assert not is_dropped(slow[-1])


def test_head_that_does_not_end_is_not_waited_for(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_clients, "HEAD_WITHIN_S", 0.3)
    for sent in (b"", HALF, b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" + HALF):
        with connect(api.url, sent) as slow:
            eventually(partial(is_dropped, slow))
    assert not slow_clients.GuardedProtocol.without_head.get("127.0.0.1")


def test_body_that_trickles_ends_in_time(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "BODY_WITHIN_S", 0.3)
    key = api.key().headers["Authorization"]
    head = (
        f"POST /api/v1/queue/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        f"Authorization: {key}\r\nContent-Length: 1000\r\n\r\n"
    )
    with connect(api.url, head.encode()) as slow:
        assert slow.makefile("rb").read().startswith(b"HTTP/1.1 408")


def unfinished(method: str, path: str, headers: dict[str, str]) -> bytes:
    """Return the head of a request whose body never comes."""
    sent = {"Host": "a", "Content-Length": "1000", **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()


def test_slow_bodies_take_no_place_from_anybody(api: Api) -> None:
    ann, bob, worker = api.key(), api.key("bob"), raw_worker(api)
    head = unfinished("POST", "/api/v1/queue/check", {**JSON, **bob.headers})
    with ExitStack() as held:
        slow = [held.enter_context(connect(api.url, head)) for _ in range(20)]
        eventually(lambda: len(select(slow, [], [], 0)[0]) == 12)
        (told, *_), _, _ = select(slow, [], [], 0)
        answer = told.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 429")
        assert b"retry-after" in answer.lower()
        assert bob.get("/api/v1/queue/jobs")["items"] == []
        job = ann.submit()
        assert worker.claim()[0]["job_id"] == job
        assert worker.heartbeat() is not None


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/api/v1/queue/jobs", {"Authorization": "Bearer {n}"}, 400),
        ("GET", "/jobs", {"Cookie": "forge_80={n}"}, 400),
        ("GET", "/login", {}, 400),
        ("POST", "/api/v1/queue/cancel", {"Authorization": "Bearer {n}"}, 401),
        ("POST", "/api/v1/queue/jobs/1/cancel", {}, 401),
        ("POST", "/api/v1/workers/heartbeat", {"X-Worker-Token": "fgw_{n}"}, 401),
        ("GET", "/api/v1/workers/job/1/checkpoint", {"X-Worker-Token": "fgw_{n}"}, 400),
    ],
)
def test_strangers_are_answered_before_their_bodies_come(
    api: Api, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    with ExitStack() as held:
        for number in range(90):
            said = {name: value.format(n=number) for name, value in headers.items()}
            slow = held.enter_context(connect(api.url, unfinished(method, path, {**JSON, **said})))
            slow.settimeout(120)
            assert slow.recv(12) == f"HTTP/1.1 {status}".encode()


def test_logins_that_do_not_come_hold_up_only_logins_for_a_moment(api: Api) -> None:
    ann = api.key()
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    with ExitStack() as held:
        for _ in range(20):
            for path in ("/login", "/login/terminal/key", "/preferences", "/jobs/cancel"):
                held.enter_context(connect(api.url, unfinished("POST", path, form)))
        ann.submit()
        assert ann.get("/api/v1/queue/jobs")["items"]
        assert api.http.get("/login").is_success
        ended = held.enter_context(connect(api.url, unfinished("POST", "/login", form)))
        ended.settimeout(120)
        assert ended.recv(12) in {b"HTTP/1.1 408", b"HTTP/1.1 429"}
    guest = Guest(api).login("bob", Role.VIEWER)
    assert guest.http.get("/jobs").is_success


def test_client_that_leaves_is_no_error_of_the_server(api: Api) -> None:
    ann = api.key()
    sent = [
        unfinished("POST", "/api/v1/queue/check", {**JSON, **ann.headers}),
        unfinished("POST", "/login", {"Content-Type": "application/x-www-form-urlencoded"}),
        unfinished("POST", "/api/v1/workers/join", JSON),
    ]
    with capture_logs() as told:
        for head in sent:
            connect(api.url, head).close()
        eventually(lambda: len(told) == 3)
    # 400 where the framework takes what came for the whole body.
    assert {one["status"] for one in told} == {400, 499}
    assert not [one for one in told if one["log_level"] == "error"]


def test_body_in_broken_pieces_is_no_error_of_the_server(api: Api) -> None:
    head = b"POST /health HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    with capture_logs() as told, connect(api.url, head + b"no length\r\n") as broken:
        assert broken.makefile("rb").read().startswith(b"HTTP/1.1 400")
        eventually(lambda: bool(told))
    assert [one["event"] for one in told] == ["request"]


def test_address_has_half_of_the_connections(rig: Rig, tmp_path: Path) -> None:
    app = quick_app(server_settings(rig.url, (tmp_path / "store").as_uri()))
    with serving(app, **GUARDED, limit_concurrency=20) as url, ExitStack() as held:
        api = Api(app, url, rig)
        many = [held.enter_context(connect(api.url, HALF)) for _ in range(15)]
        for connection in many[10:]:
            eventually(partial(is_dropped, connection))
        assert not any(is_dropped(connection) for connection in many[:10])
        other = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(transport=other, base_url=url) as elsewhere:
            assert elsewhere.get("/health").is_success


HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
)
KEY = "dGhlIHNhbXBsZSBub25jZQ=="


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [
        ("/api/v1/queue/shells", KEY, 403),
        ("/api/v1/workers/shells/1-a", KEY, 403),
        ("/nowhere", KEY, 403),
        ("/api/v1/queue/shells", "broken", 400),
    ],
)
def test_refused_handshakes_give_their_places_back_and_are_logged(
    rig: Rig, tmp_path: Path, path: str, key: str, status: int
) -> None:
    app = quick_app(server_settings(rig.url, (tmp_path / "store").as_uri()))
    with serving(app, **GUARDED, limit_concurrency=20) as url, capture_logs() as told:
        for _ in range(30):
            with connect(url, HANDSHAKE.format(path=path, key=key).encode()) as refused:
                assert refused.makefile("rb").readline().startswith(f"HTTP/1.1 {status}".encode())
        eventually(lambda: not slow_clients.PLACES.of_address)
        assert httpx.get(f"{url}/health").is_success
    lines = [line for line in told if line.get("path") == path and line["status"] == status]
    assert len(lines) == 30


def test_open_web_sockets_keep_their_places() -> None:
    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass

    sent = HANDSHAKE.format(path="/", key=KEY).encode()
    with (
        listening(app, lifespan="off", **GUARDED, limit_concurrency=20) as url,
        ExitStack() as held,
    ):
        many = [held.enter_context(connect(url, sent)) for _ in range(10)]
        for connection in many:
            assert connection.recv(12) == b"HTTP/1.1 101"
        with connect(url, HALF) as another:
            eventually(partial(is_dropped, another))
        many[0].close()
        eventually(lambda: slow_clients.PLACES.of_address.total() == 9)
        with connect(url, sent) as another:
            assert another.recv(12) == b"HTTP/1.1 101"


def test_connections_leave_descriptors_for_the_rest() -> None:
    code = (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (64, 300));"
        "from forge_functions.middleware.slow_clients import most_connections;"
        "print(most_connections(), r.getrlimit(r.RLIMIT_NOFILE)[0])"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert told.stdout.split() == ["172", "300"]


def test_connection_may_rest_longer_than_clients_and_proxies_keep_it() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        loops.append(asyncio.get_running_loop())
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    said = server_settings("postgresql://none", "file:///none")
    config = server.config_of(app, FunctionsSettings.model_validate(said.model_dump()))
    options = {"http": config.http, "timeout_keep_alive": config.timeout_keep_alive}
    with listening(app, lifespan="off", **options) as url, connect(url, HALF + END) as resting:
        assert resting.recv(1 << 16).startswith(b"HTTP/1.1 204")
        pass_time(loops[0], 61)
        resting.sendall(HALF + END)
        assert resting.recv(1 << 16).startswith(b"HTTP/1.1 204")
        pass_time(loops[0], 90)
        assert resting.recv(1) == b""


def pass_time(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Advance the clock of a server's loop, and let the loop do what is due by then."""

    async def advance() -> None:
        now = loop.time
        loop.time = lambda: now() + seconds  # type: ignore[method-assign]
        # Until its timers have run.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run_coroutine_threadsafe(advance(), loop).result(60)


@contextmanager
def streaming(worker: RawWorker) -> Iterator[Iterator[bytes]]:
    """Open a stream of hints, and yield what follows its first words."""
    headers = {**worker.headers, "Accept": "text/event-stream"}
    with worker.api.http.stream("GET", "/api/v1/workers/stream", headers=headers) as answer:
        words = answer.iter_raw()
        assert next(words)
        yield words


def test_worker_has_two_streams_and_the_newest_stay(api: Api) -> None:
    worker = raw_worker(api)
    with ExitStack() as held:
        streams = [held.enter_context(streaming(worker)) for _ in range(4)]
        for old in streams[:2]:
            assert list(old) is not None
        eventually(lambda: api.services.hub.waiting == 2)


def test_of_streams_that_are_opened_at_once_two_stay() -> None:
    async def told() -> list[bool]:
        hub = Hub("", stopping, listens=False)
        with ExitStack() as held:
            ears = [held.enter_context(hub.stream(1)) for _ in range(6)]
            return [LEAVING in await ear.wait(0.01) for ear in ears]

    stopping = Event()
    assert asyncio.run(told()) == [True, True, True, True, False, False]
    stopping.set()


def test_stream_of_a_deleted_worker_ends(api: Api) -> None:
    worker = raw_worker(api, registered=False)
    with streaming(worker) as words:
        api.workers.delete(worker.id)
        assert list(words) is not None
