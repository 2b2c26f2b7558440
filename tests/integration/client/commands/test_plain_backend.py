"""The backend of everyday commands: it finds what the whole one finds and leaves it the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from forge_client.errors import ClientError
from forge_client.plain.backend import PlainBackend, PlainRow
from forge_client.plain.place import OWNER_HEADER, ServerPlace, of_up
from forge_client.plain.wire import NotPlain, Wire
from forge_client.project.bundle import pack
from forge_client.running import Running
from forge_schema.model.states import Reason
from pydantic import BaseModel
from support.client.reaching import key, reaching
from support.http.server import served, server_settings
from support.queue.holder import Holder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forge_client import Client
    from support.queue.rig import Rig

Whole: TypeAlias = Any
"""An `HttpBackend`, called as a `PlainBackend` is."""

TOKEN = "t" * 64


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


@pytest.fixture
def client(rig: Rig, store_url: str) -> Iterator[Client]:
    with reaching("http", rig, store_url) as client:
        yield client


@pytest.fixture
def whole(client: Client) -> Whole:
    return client.backend


def nobody() -> Whole:
    """Fail where nothing may be left to the whole client."""
    raise AssertionError("this is plain")


@pytest.fixture
def plain(whole: Whole, rig: Rig) -> Iterator[PlainBackend]:
    url = whole.environment["FORGE_URL"]
    place = ServerPlace(url, {"Authorization": f"Bearer {key(rig)}"}, None)
    with PlainBackend(place, nobody) as backend:
        yield backend


def same(plain: object, whole: object) -> bool:
    """Tell whether rows have the fields of models, in every record within them."""
    if isinstance(whole, list | tuple) and isinstance(plain, list):
        return len(plain) == len(whole) and all(map(same, plain, whole))
    if isinstance(whole, BaseModel) and isinstance(plain, PlainRow):
        fields = type(whole).model_fields.keys() - {"url", "due_in_s"}
        return all(same(getattr(plain, name), getattr(whole, name)) for name in fields)
    if isinstance(whole, float):
        return bool(plain == pytest.approx(whole, abs=5))
    return bool(plain == whole)


def test_it_finds_what_the_whole_one_finds(
    plain: PlainBackend,
    whole: Whole,
    rig: Rig,
    store_url: str,
) -> None:
    failed = rig.submit(name="failed", owner="ann", backoff_s=0, max_failures=0)
    holder = Holder(rig, store_url)
    holder.write(b"one\n")
    holder.write(b"two\n")
    holder.leave("model.bin", b"weights")
    holder.end(Reason.EXIT_CODE, 3)
    rig.submit(name="waits", owner="ann", after_ok=[failed])
    running = rig.submit(name="runs", owner="ann")
    Holder(rig, store_url, "w2")
    assert same(plain.jobs(), whole.jobs())
    assert same(plain.jobs("state:failed", count=1), whole.jobs("state:failed", count=1))
    assert plain.jobs(states=["running"])[0].job_id == running
    assert plain.me().owner == whole.me().owner
    assert plain.job_id("@last") == whole.job_id("@last")
    for job in (failed, running):
        assert same(plain.job(job), whole.job(job))
        assert same(plain.attempts(job), whole.attempts(job))
        assert same(plain.events(job), whole.events(job))
        assert same(plain.artifacts(job), whole.artifacts(job))
        assert same(plain.findings.last_metrics(job), whole.findings.last_metrics(job))
        assert same(plain.findings.result(job), whole.findings.result(job))
    chunks = plain.log_chunks(failed)
    assert [chunk.place for chunk in chunks] == [one.place for one in whole.log_chunks(failed)]
    assert b"".join(map(plain.log_bytes, chunks)) == b"one\ntwo\n"
    assert plain.job(failed).terminal


def test_it_submits_and_cancels(plain: PlainBackend, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    bundle = pack(folder, tmp_path / "bundle.tar.zst", limit_bytes=1 << 20)
    assert not plain.has_bundle(bundle)
    sent: list[int] = []
    plain.upload_bundle(bundle, sent.append)
    assert sent == [bundle.size]
    assert plain.has_bundle(bundle)
    spec = {"name": "x", "command": ["true"], "bundle_digest": bundle.digest}
    plain.check([spec])
    (job,) = plain.submit([spec])
    assert same(plain.explain(job, workers=0).outlook, "no_worker")
    assert plain.cancel(job) == "cancelled"
    assert plain.job(job).bundle_digest == bundle.digest
    # Of several, each is looked for first.
    assert [*plain.statuses([job, job + 1])] == [job]
    assert plain.statuses([job])[job].state == "cancelled"


def test_an_error_is_the_whole_clients(whole: Whole, rig: Rig) -> None:
    url = whole.environment["FORGE_URL"]
    place = ServerPlace(url, {"Authorization": f"Bearer {key(rig)}"}, None)
    with PlainBackend(place, lambda: whole) as backend:
        with pytest.raises(ClientError, match="there is no job 7"):
            backend.job(7)
        # It is not asked again.
        assert backend.given_up()
        assert backend.jobs() == whole.jobs()


def test_a_submit_that_is_done_again_makes_one_job(
    whole: Whole,
    rig: Rig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = whole.environment["FORGE_URL"]
    place = ServerPlace(url, {"Authorization": f"Bearer {key(rig)}"}, None)
    ask = Wire.ask

    def unheard(wire: Wire, *args: Any) -> bytes:  # noqa: ANN401  as `ask`
        ask(wire, *args)
        raise NotPlain("the answer was lost")

    monkeypatch.setattr(Wire, "ask", unheard)
    with PlainBackend(place, lambda: whole) as backend:
        (job,) = backend.submit([{"name": "x", "command": ["true"]}])
        assert [one.job_id for one in whole.jobs()] == [job]


def test_the_user_of_a_forge_up_needs_no_key(rig: Rig, store_url: str, tmp_path: Path) -> None:
    settings = server_settings(rig.url, store_url, up_token=TOKEN)
    rig.submit(owner="bob")
    with served(settings) as url:
        told: dict[str, Any] = {
            "dir": tmp_path,
            "pid": 1,
            "database_url": rig.url,
            "store_url": store_url,
        }
        Running(**told, url=url, token=TOKEN, version="1").write()
        with PlainBackend(of_up(str(tmp_path), "ann"), nobody) as backend:
            assert (backend.me().owner, backend.me().actor) == ("ann", "user:ann")
            assert [job.owner for job in backend.jobs()] == ["bob"]
        for headers in ({OWNER_HEADER: "ann"}, {"Authorization": f"Bearer {TOKEN[1:]}"}):
            wrong = {"Authorization": f"Bearer {TOKEN[1:]}", OWNER_HEADER: "ann", **headers}
            with pytest.raises(NotPlain, match="401"):
                Wire(url, wrong).json("GET", "/api/v1/me")


def test_the_token_of_a_forge_up_needs_an_owner(rig: Rig, store_url: str) -> None:
    with served(server_settings(rig.url, store_url, up_token=TOKEN)) as url:
        wire = Wire(url, {"Authorization": f"Bearer {TOKEN}"})
        with pytest.raises(NotPlain, match="401"):
            wire.json("GET", "/api/v1/me")


def test_a_forge_up_of_the_release_before_is_left_to_the_whole_client(tmp_path: Path) -> None:
    (tmp_path / "connection.json").write_text('{"url": "http://127.0.0.1:8900"}')
    with pytest.raises(NotPlain):
        of_up(str(tmp_path), "ann")
