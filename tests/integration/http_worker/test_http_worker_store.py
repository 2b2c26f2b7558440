"""An attempt's objects by signed URLs, in a file store behind the server and in S3."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest
import stamina
from forge_schema.http_client import tls_context
from forge_schema.model.stored import SignedUrl
from forge_schema.storage import KeyInvalid, ObjectMissing, Store, StoreUnreachable, open_store
from forge_schema.storage.signed import PATH
from forge_schema.storage.store import StoreError
from forge_worker.attempt import LiveAttempt, Stopped
from forge_worker.circuit_breaker import ServerUnreachable
from forge_worker.queue.http.gateway import HttpGateway
from forge_worker.queue.http.signed_requests import SignedRequests
from forge_worker.queue.http.store import HttpObjects, HttpStore, LeaseLost
from support.http.api import opened
from support.http.http_worker import PLENTY, machine, session
from support.store.storage import answer, drop, new_bucket, proxy, use_credentials
from support.workers.attempts import attempt_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

    from support.http.api import Api
    from support.queue.rig import Rig
    from support.store.storage import Proxy

BUNDLE = "cd" * 32


@dataclass
class Place:
    """One attempt's objects, and direct access to the same store."""

    api: Api
    objects: HttpObjects
    attempt: LiveAttempt
    store: Store
    between: Proxy

    def key(self, name: str = "x") -> str:
        return self.attempt.keys.artifact(name)

    def checkpoint(self, number: int = 0) -> str:
        return self.attempt.keys.checkpoint_manifest(number)


@pytest.fixture(params=["file", "s3"])
def place(
    request: pytest.FixtureRequest, rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    (tmp_path / "store").mkdir()
    with ExitStack() as held:
        if request.param == "s3":
            use_credentials(monkeypatch)
            between = held.enter_context(proxy(request.getfixturevalue("moto")))
            url = held.enter_context(new_bucket(between.url)).url()
            api = held.enter_context(opened(rig, tmp_path / "store"))
            api.services.settings.store_url = url
        else:
            url = (tmp_path / "store").as_uri()
            api = held.enter_context(opened(rig, tmp_path / "store"))
            between = held.enter_context(proxy(api.url))
            # Objects travel through a proxy that a test can disturb; other requests do not.
            api.services.settings.public_url = between.url
        token = api.workers.create("w")[1]
        made = held.enter_context(session([api.url], token))
        gateway = HttpGateway(made)
        gateway.register(machine())
        rig.submit(bundle_digest=BUNDLE)
        (grant,) = gateway.finish_and_claim([], PLENTY, 1)[1]
        attempt = attempt_of(grant, tmp_path / "attempt")
        store = HttpStore(made, tls_context())
        held.callback(store.close)
        yield Place(api, store.of(attempt), attempt, open_store(url), between)


def test_what_is_put_is_there(place: Place, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    source = tmp_path / "source"
    source.write_bytes(data)
    moved: list[int] = []
    assert place.objects.put(place.key("a"), b"small")
    assert place.objects.put(place.key("nothing"), b"")
    assert place.objects.put_file(place.key("b/ü ?#%&+"), source, progress=moved.append)
    assert place.store.get(place.key("a")) == b"small"
    assert place.store.get(place.key("nothing")) == b""
    assert place.store.get(place.key("b/ü ?#%&+")) == data
    assert sum(moved) == len(data)
    assert place.objects.put(place.key("a"), b"other")
    assert place.store.get(place.key("a")) == b"other"


def test_what_is_there_can_be_read(place: Place, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    place.store.put(place.checkpoint(), data)
    place.store.put(f"bundles/{BUNDLE}.tar.zst", b"code")
    assert place.objects.get(place.checkpoint()) == data
    moved: list[int] = []
    place.objects.get_file(place.checkpoint(), tmp_path / "out", progress=moved.append)
    assert (tmp_path / "out").read_bytes() == data
    assert sum(moved) == len(data)
    place.objects.get_file(f"bundles/{BUNDLE}.tar.zst", tmp_path / "code")
    assert (tmp_path / "code").read_bytes() == b"code"


def test_what_is_absent_is_missing(place: Place, tmp_path: Path) -> None:
    with pytest.raises(ObjectMissing, match="there is no object jobs/"):
        place.objects.get(place.checkpoint())
    with pytest.raises(ObjectMissing):
        place.objects.get_file(place.checkpoint(), tmp_path / "out")
    assert list(tmp_path.glob("*out*")) == []


def test_what_is_there_already_stays(place: Place) -> None:
    place.store.put(place.key(), b"first")
    assert place.objects.put(place.key(), b"second", if_absent=True) is False
    assert place.store.get(place.key()) == b"first"
    assert place.objects.put(place.key("new"), b"second", if_absent=True)


def test_another_jobs_objects_are_out_of_reach(place: Place, tmp_path: Path) -> None:
    place.store.put("jobs/999/1-1-abc/checkpoints/000000.json", b"secret")
    for key in ("jobs/999/1-1-abc/checkpoints/000000.json", f"bundles/{'ab' * 32}.tar.zst"):
        with pytest.raises(KeyInvalid, match="this lease has no such object"):
            place.objects.get_file(key, tmp_path / "out")
        with pytest.raises(KeyInvalid):
            place.objects.put(key, b"x")
    assert place.store.get("jobs/999/1-1-abc/checkpoints/000000.json") == b"secret"


def test_an_attempt_whose_lease_is_gone_is_lost(place: Place) -> None:
    place.api.rig.expire()
    place.api.rig.tick.run()
    with pytest.raises(LeaseLost):
        place.objects.put(place.key(), b"late")
    assert place.attempt.lost
    assert place.store.size(place.key()) is None


def test_a_transfer_that_is_not_wanted_any_more_ends(place: Place, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(4 << 20))
    place.store.put(place.checkpoint(), source.read_bytes())

    def lose(_moved: int) -> None:
        place.attempt.lose()
        place.attempt.while_held()

    with pytest.raises(Stopped):
        place.objects.put_file(place.key(), source, progress=lose)
    with pytest.raises(Stopped):
        place.objects.get_file(place.checkpoint(), tmp_path / "out", progress=lose)
    assert place.store.size(place.key()) is None
    assert not (tmp_path / "out").exists()


@pytest.fixture
def hurried() -> Iterator[None]:
    """Skip every pause between two tries; there are as many tries as ever."""
    with stamina.set_testing(True, attempts=9, cap=True):
        yield


class Trouble:
    """Does something else with the first requests for objects."""

    def __init__(self, *kinds: object) -> None:
        self.left = list(kinds)

    def __call__(self, handler: BaseHTTPRequestHandler, _body: bytes) -> bool:
        if not self.left:
            return False
        kind = self.left.pop(0)
        return answer(handler, kind) if isinstance(kind, int) else drop(handler)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("status", [403, 409, 429, 500, 503, "cut"])
def test_what_may_pass_is_tried_again_with_a_new_url(
    place: Place, tmp_path: Path, status: int | str
) -> None:
    place.store.put(place.checkpoint(), b"there")
    place.between.fault = Trouble(status, status)
    assert place.objects.put(place.key(), b"data")
    assert place.store.get(place.key()) == b"data"
    place.between.fault = Trouble(status)
    place.objects.get_file(place.checkpoint(), tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"there"
    place.between.fault = Trouble(*[status] * 3)
    with pytest.raises(StoreUnreachable) as error:
        place.objects.put(place.key(), b"data")
    # The URL is as good as a password for a while.
    assert "ignature" not in str(error.value)


def test_what_will_not_pass_is_said(place: Place) -> None:
    place.between.fault = Trouble(HTTPStatus.BAD_REQUEST)
    with pytest.raises(StoreError, match="answered 400") as error:
        place.objects.put(place.key(), b"data")
    assert not isinstance(error.value, StoreUnreachable)


def test_a_server_that_is_elsewhere_for_its_workers_is_told_so() -> None:
    url = f"http://127.0.0.1:1{PATH}k?signature=secret"
    signed = SignedUrl(url=url, method="GET", headers={}, expires_in_s=9)
    requests = SignedRequests(tls_context())
    with pytest.raises(StoreUnreachable) as told, requests.getting("k", signed):
        pass
    assert str(told.value).startswith("the store at http://127.0.0.1:1 did not answer for k: ")
    assert "FORGE_PUBLIC_URL" in told.value.hint


@pytest.mark.usefixtures("hurried")
def test_half_an_object_is_no_object(place: Place, tmp_path: Path) -> None:
    place.store.put(place.checkpoint(), os.urandom(100_000))
    place.between.answer_limit = lambda method, _path: 50_000 if method == "GET" else None
    with pytest.raises(StoreUnreachable):
        place.objects.get_file(place.checkpoint(), tmp_path / "out")
    with pytest.raises(StoreUnreachable):
        place.objects.get(place.checkpoint())
    assert list(tmp_path.glob("*out*")) == []


@pytest.mark.usefixtures("hurried")
def test_an_upload_whose_answer_was_lost_is_there(place: Place) -> None:
    lost = [0, 0]
    place.between.answer_limit = lambda _method, _path: lost.pop() if lost else None
    assert place.objects.put(place.key(), b"data")
    assert place.store.get(place.key()) == b"data"


def test_the_workers_token_goes_to_the_server_alone(place: Place) -> None:
    heard: list[str] = []

    def listen(handler: BaseHTTPRequestHandler, _body: bytes) -> bool:
        heard.append(str(handler.headers).lower())
        return False

    place.between.fault = listen
    place.objects.put(place.key(), b"data")
    assert heard
    assert "fgw_" not in "".join(heard)
    assert "x-worker-token" not in "".join(heard)


def test_a_server_that_is_away_is_waited_for_as_the_database(place: Place) -> None:
    place.objects._store.session.servers._servers[0].url = "http://127.0.0.1:9"
    with pytest.raises(ServerUnreachable):
        place.objects.put(place.key(), b"data")


def test_objects_of_another_attempt_are_not_signed(place: Place) -> None:
    other = replace(place.attempt.grant, attempt=place.attempt.grant.attempt + 1)
    foreign = LiveAttempt(other, place.attempt.folders)
    with pytest.raises(KeyInvalid):
        place.objects.put(foreign.keys.artifact("x"), b"data")
