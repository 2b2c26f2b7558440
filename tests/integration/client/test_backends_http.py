"""Behaviour specific to the backend that goes through a server: lost answers, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from forge_client import Client, ClientError
from forge_client.http import Server, transport
from forge_client.http.backend import HttpBackend
from forge_client.project.bundle import pack
from forge_schema.access.api_keys import Keys
from forge_schema.model.states import Reason, Role
from support.client.reaching import key
from support.http.server import served, server_settings
from support.queue.holder import Holder
from support.store.storage import Proxy, answer, drop, proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.queue.rig import Rig

SPEC = {"name": "x", "owner": "ann", "command": ["ls"]}
Handler = BaseHTTPRequestHandler


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


@pytest.fixture
def door(rig: Rig, store_url: str) -> Iterator[Proxy]:
    """The way to the server, which a test can block."""
    with served(server_settings(rig.url, store_url)) as url, proxy(url) as door:
        yield door


@pytest.fixture
def backend(door: Proxy, rig: Rig) -> Iterator[HttpBackend]:
    with HttpBackend(Server(door.url, key(rig))) as backend:
        yield backend


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n", encoding="utf-8")
    return folder


def refusal(code: str, exit_code: int) -> pytest.RaisesExc[ClientError]:
    def fits(error: ClientError) -> bool:
        return (error.code, error.exit_code) == (code, exit_code)

    return pytest.RaisesExc(ClientError, check=fits)


def unheard(door: Proxy, path: str, times: int = 1) -> None:
    """Let the server act on the next requests to a path, but lose its answers."""
    left = [times]

    def limit(_method: str, asked: str) -> int | None:
        if path not in asked or not left[0]:
            return None
        left[0] -= 1
        return 0

    door.answer_limit = limit


def instead(door: Proxy, path: str, act: Callable[[Handler], bool], times: int = 1) -> None:
    """Do something else with the next requests to a path."""
    left = [times]

    def fault(handler: Handler, _body: bytes) -> bool:
        if path not in handler.path or not left[0]:
            return False
        left[0] -= 1
        return act(handler)

    door.fault = fault


def count(door: Proxy, path: str) -> int:
    return sum(path in request for request in door.seen)


@pytest.mark.parametrize("way", ["unheard", "gateway"])
def test_a_submit_whose_answer_was_lost_is_repeated_and_makes_one_job(
    way: str, backend: HttpBackend, door: Proxy, rig: Rig
) -> None:
    if way == "unheard":
        unheard(door, "/submit", times=2)
    else:
        instead(door, "/submit", lambda handler: answer(handler, 502, b"<html>"), times=2)
    ids = backend.submit([SPEC, SPEC])
    assert count(door, "/submit") == 3
    assert [row["id"] for row in rig.rows("SELECT id FROM job ORDER BY id")] == ids
    assert len(ids) == 2


def test_a_cancel_whose_answer_was_lost_is_repeated(backend: HttpBackend, door: Proxy) -> None:
    (job,) = backend.submit([SPEC])
    unheard(door, "/cancel")
    assert backend.cancel(job) == "cancelled"
    assert count(door, "/cancel") == 2


def test_what_would_be_done_twice_is_not_repeated(
    backend: HttpBackend, door: Proxy, rig: Rig, store_url: str
) -> None:
    (job,) = backend.submit([{**SPEC, "max_failures": 0}])
    holder = Holder(rig, store_url)
    unheard(door, "/preempt")
    with refusal("answer_lost", 5):
        backend.preempt(job)
    assert backend.job(job).asked == "preempted"
    holder.end(Reason.EXIT_CODE, 1)
    unheard(door, "/retry")
    with refusal("answer_lost", 5):
        backend.retry(job)
    assert backend.job(job).state == "queued"
    unheard(door, "/admin/keys")
    with refusal("answer_lost", 5):
        backend.admin.create_key("bob", "viewer")
    assert [key.owner for key in backend.admin.api_keys()].count("bob") == 1
    assert [count(door, path) for path in ("/preempt", "/retry")] == [1, 1]


def test_what_never_reached_the_server_is_repeated(
    backend: HttpBackend, door: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.workers()
    instead(door, "/drain", lambda handler: answer(handler, 429, b"slow down"))
    with refusal("worker_not_found", 3):
        backend.drain(7)
    assert count(door, "/drain") == 2
    monkeypatch.setattr(transport, "PATIENCE_S", 0.5)
    instead(door, "/workers", drop, times=99)
    with refusal("server_unreachable", 5):
        backend.workers()


def test_a_server_that_is_restarted_is_waited_for(backend: HttpBackend, door: Proxy) -> None:
    backend.workers()
    instead(door, "/workers", lambda handler: answer(handler, 503), times=3)
    assert backend.workers() == []
    assert count(door, "/workers") == 5


def test_an_upload_that_breaks_off_is_begun_again(
    backend: HttpBackend, door: Proxy, project: Path, tmp_path: Path
) -> None:
    bundle = pack(project, tmp_path / "bundle", limit_bytes=1 << 20)
    instead(door, "/api/v1/objects/", drop)
    moved: list[int] = []
    backend.upload_bundle(bundle, moved.append)
    assert backend.has_bundle(bundle)
    assert sum(moved) == bundle.size
    (stored,) = (tmp_path / "store" / "bundles").iterdir()
    assert stored.read_bytes() == bundle.path.read_bytes()


def test_an_upload_is_begun_again_however_slow_the_servers_first_answer_was(
    backend: HttpBackend,
    door: Proxy,
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "FIRST_PATIENCE_S", 0)
    bundle = pack(project, tmp_path / "bundle", limit_bytes=1 << 20)
    instead(door, "/api/v1/objects/", drop)
    backend.upload_bundle(bundle)
    assert count(door, "/api/v1/objects/") == 2


def test_an_upload_whose_answer_was_lost_is_found_done(
    backend: HttpBackend, door: Proxy, project: Path, tmp_path: Path
) -> None:
    bundle = pack(project, tmp_path / "bundle", limit_bytes=1 << 20)
    unheard(door, "/api/v1/objects/")
    backend.upload_bundle(bundle)
    assert count(door, "/api/v1/objects/") == 1
    assert backend.has_bundle(bundle)


def test_an_upload_that_the_store_refuses_says_so(
    backend: HttpBackend, door: Proxy, project: Path, tmp_path: Path
) -> None:
    bundle = pack(project, tmp_path / "bundle", limit_bytes=1 << 20)
    instead(door, "/api/v1/objects/", lambda handler: answer(handler, 403), times=99)
    with refusal("url_refused", 7):
        backend.upload_bundle(bundle)
    instead(door, "/api/v1/objects/", lambda handler: answer(handler, 400), times=99)
    with refusal("store_refused", 1):
        backend.upload_bundle(bundle)


def left_behind(backend: HttpBackend, rig: Rig, store_url: str, size: int) -> int:
    (job,) = backend.submit([SPEC])
    holder = Holder(rig, store_url)
    holder.write(b"hello\n")
    holder.leave("model", b"x" * size)
    holder.end()
    return job


def test_a_url_whose_time_is_over_is_asked_for_anew(
    backend: HttpBackend, door: Proxy, rig: Rig, store_url: str, tmp_path: Path
) -> None:
    job = left_behind(backend, rig, store_url, 10)
    (file,), (chunk,) = backend.artifacts(job), backend.log_chunks(job)
    instead(door, "/api/v1/objects/", lambda handler: answer(handler, 403))
    backend.download(file, tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == b"x" * 10
    instead(door, "/api/v1/objects/", lambda handler: answer(handler, 403))
    assert backend.log_bytes(chunk) == b"hello\n"
    assert [count(door, f"/queue/jobs/{job}/{what}") for what in ("artifacts", "logs")] == [2, 2]


def test_a_download_that_breaks_off_is_begun_again(
    backend: HttpBackend, door: Proxy, rig: Rig, store_url: str, tmp_path: Path
) -> None:
    job = left_behind(backend, rig, store_url, 3 << 20)
    (file,) = backend.artifacts(job)
    limits = [2 << 20, 1 << 20]
    door.answer_limit = lambda _method, path: (
        limits.pop() if "/api/v1/objects/" in path and limits else None
    )
    moved: list[int] = []
    backend.download(file, tmp_path / "model", moved.append)
    assert (tmp_path / "model").read_bytes() == b"x" * (3 << 20)
    assert sum(moved) == 3 << 20
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_an_object_without_end_is_not_read_to_its_end(
    backend: HttpBackend, door: Proxy, rig: Rig, store_url: str, tmp_path: Path
) -> None:
    job = left_behind(backend, rig, store_url, 10)
    (file,) = backend.artifacts(job)

    def endless(handler: Handler) -> bool:
        handler.send_response(200)
        handler.end_headers()
        handler.close_connection = True
        with suppress(ConnectionError):
            while True:
                handler.wfile.write(b"x" * (1 << 20))
        return True

    instead(door, "/api/v1/objects/", endless)
    with refusal("object_corrupt", 1):
        backend.download(file, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_the_api_key_is_for_the_server_alone(
    backend: HttpBackend, door: Proxy, rig: Rig, store_url: str, tmp_path: Path
) -> None:
    keyed: list[tuple[bool, str]] = []

    def look(handler: Handler, _body: bytes) -> bool:
        keyed.append(("authorization" in handler.headers, handler.path.partition("?")[0]))
        return False

    door.fault = look
    (tmp_path / "project").mkdir()
    bundle = pack(tmp_path / "project", tmp_path / "bundle", limit_bytes=1 << 20)
    backend.upload_bundle(bundle)
    job = left_behind(backend, rig, store_url, 10)
    backend.download(backend.artifacts(job)[0], tmp_path / "model")
    backend.health()
    assert {shown for shown, path in keyed if path.startswith("/api/v1/objects/")} == {False}
    assert {shown for shown, path in keyed if path == "/health"} == {False}
    assert {shown for shown, path in keyed if path.startswith("/api/v1/queue/")} == {True}


def test_another_owners_job_is_as_good_as_none(door: Proxy, rig: Rig) -> None:
    with Client(url=door.url, api_key=key(rig)) as ann:
        (job,) = ann.backend.submit([{**SPEC, "owner": "eve"}])
    with HttpBackend(Server(door.url, key(rig, "bob", Role.SUBMITTER))) as bob:
        for act in (bob.job, bob.cancel, bob.retry, bob.preempt, bob.attempts, bob.artifacts):
            with refusal("job_unknown", 3) as caught:
                act(job)
            assert caught.value.message == f"there is no job {job}"
        assert bob.jobs() == []
        assert bob.statuses([job]) == {}


def test_a_role_that_is_too_low_is_told(door: Proxy, rig: Rig) -> None:
    with HttpBackend(Server(door.url, key(rig, "ann", Role.VIEWER))) as viewer:
        with refusal("forbidden", 7) as caught:
            viewer.submit([{"name": "x", "command": ["ls"]}])
        assert caught.value.hint
        assert viewer.jobs() == []
    with HttpBackend(Server(door.url, key(rig, "ann", Role.SUBMITTER))) as submitter:
        for act in (submitter.admin.api_keys, submitter.admin.events):
            with refusal("forbidden", 7):
                act()
        with refusal("forbidden", 7):
            submitter.submit([{**SPEC, "owner": "eve"}])


def test_a_wrong_key_is_told_and_not_shown(door: Proxy, rig: Rig) -> None:
    made, text = Keys(rig.database, actor="user:root").create("ann", Role.ADMIN)
    Keys(rig.database, actor="user:root").rotate(made)
    with HttpBackend(Server(door.url, text)) as backend:
        for _ in range(10):
            with refusal("unauthenticated", 7) as caught:
                backend.jobs()
            assert text not in str(caught.value) + caught.value.hint + repr(
                backend._transport.server
            )
            assert "FORGE_API_KEY" in caught.value.hint
        with refusal("too_many_failures", 7):
            backend.jobs()
    assert count(door, "/jobs") == 11


def test_without_a_key_nothing_is_asked(door: Proxy) -> None:
    with HttpBackend(Server(door.url)) as backend, refusal("api_key_missing", 7):
        backend.jobs()
    assert door.seen == []


def test_a_request_that_is_too_large_is_told(rig: Rig, store_url: str) -> None:
    with (
        served(server_settings(rig.url, store_url, body_limit_bytes=2000)) as url,
        HttpBackend(Server(url, key(rig))) as backend,
    ):
        with refusal("too_large", 2):
            backend.submit([SPEC] * 100)
        assert rig.count("job") == 0


def pages(
    content: bytes, kind: str = "application/json", status: int = 200
) -> Callable[[Handler], bool]:
    def act(handler: Handler) -> bool:
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Location", "https://elsewhere.example/api/v1/queue/jobs?count=50")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)
        return True

    return act


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (pages(b"<html>hello", "text/html"), "HTTP 200, text/html"),
        (pages(b"<html>hello", "text/html", 404), "HTTP 404, text/html"),
        (pages(b'{"message": "Not Found"}', status=404), "HTTP 404"),
        (pages(b"[1, 2]"), "does not understand"),
        (pages(b'{"jobs": []}'), "does not understand"),
        (pages(b'{"items": 3}'), "does not understand"),
        (pages(b'{"items": [{"job_id": "x"}]}'), "does not understand"),
        (pages(b"\xff\xfe"), "HTTP 200"),
    ],
)
def test_what_is_no_forge_is_told(
    backend: HttpBackend, door: Proxy, act: Callable[[Handler], bool], said: str
) -> None:
    instead(door, "/jobs", act)
    with refusal("not_forge", 6) as caught:
        backend.jobs()
    assert said in caught.value.message
    assert door.url in caught.value.message
    assert count(door, "/jobs") == 1


def test_a_redirection_is_told_and_not_followed(backend: HttpBackend, door: Proxy) -> None:
    instead(door, "/jobs", pages(b"", status=301))
    with refusal("redirected", 6) as caught:
        backend.jobs()
    assert caught.value.message.endswith("redirects to https://elsewhere.example")
