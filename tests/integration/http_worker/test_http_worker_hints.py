"""How a worker hears of work over HTTP: by a stream, by single answers, or by its polls alone."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from forge_schema.model.states import Command
from forge_worker.circuit_breaker import NotAnswered
from forge_worker.queue import hints as http_hints
from forge_worker.queue.hints import HttpHints
from support.http.api import opened
from support.http.http_worker import raw_worker, session
from support.http.tcp_proxy import tcp_proxy
from support.store.storage import proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.http.api import Api
    from support.http.http_worker import RawWorker
    from support.queue.rig import Rig
    from support.waiting import Eventually


@dataclass
class Heard:
    """Counts what was heard."""

    work: int = 0
    asked: int = 0
    hints: list[HttpHints] = field(default_factory=list)

    def more(self, kind: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)

    def forget(self) -> None:
        self.work = self.asked = 0


@contextmanager
def hearing(url: str, worker: RawWorker) -> Iterator[Heard]:
    heard = Heard()
    with session([url], worker.token) as opened_session:
        hints = HttpHints(
            opened_session, work=partial(heard.more, "work"), asked=partial(heard.more, "asked")
        )
        heard.hints.append(hints)
        hints.start()
        try:
            yield heard
        finally:
            hints.end()
            # A thread that waits for its last answer gives up when the client is closed.
            opened_session.close()
            assert hints._thread is not None
            hints._thread.join(60)


@pytest.fixture
def api(rig: Rig, tmp_path: Path) -> Iterator[Api]:
    with opened(rig, tmp_path / "store", long_poll_s=5) as made:
        yield made


@pytest.fixture
def worker(api: Api) -> RawWorker:
    return raw_worker(api)


def settled(api: Api, heard: Heard, eventually: Eventually) -> None:
    """Wait until it listens and nothing more is on the way."""
    eventually(lambda: api.services.hub.waiting == 1)
    before = -1
    while before != heard.work + heard.asked:
        before = heard.work + heard.asked
        api.services.stopping.wait(1.2)
    heard.forget()


def test_a_stream_is_heard(worker: RawWorker, eventually: Eventually) -> None:
    api = worker.api
    with hearing(api.url, worker) as heard:
        # One hint of each on connecting, since earlier hints may have been missed.
        eventually(lambda: heard.work and heard.asked)
        settled(api, heard, eventually)
        assert worker.claim() == []
        api.rig.submit()
        eventually(lambda: heard.work)
        assert heard.asked == 0
        api.rig.registry.command(worker.id, Command.DRAIN)
        eventually(lambda: heard.asked)


def test_a_stream_that_breaks_off_is_opened_again(
    worker: RawWorker, eventually: Eventually
) -> None:
    api = worker.api
    with tcp_proxy(api.url) as between, hearing(between.url, worker) as heard:
        for _ in range(3):
            eventually(lambda: heard.work)
            settled(api, heard, eventually)
            between.cut()
        eventually(lambda: heard.work)
        settled(api, heard, eventually)
        assert worker.claim() == []
        api.rig.submit()
        eventually(lambda: heard.work)


def test_a_stream_that_is_held_up_is_given_up(
    worker: RawWorker, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    api = worker.api
    monkeypatch.setattr(http_hints, "TIMEOUT", httpx.Timeout(1.0))
    monkeypatch.setattr(http_hints, "WAIT_S", 0.5)
    with tcp_proxy(api.url) as between:
        between.holds_streams = True
        with hearing(between.url, worker) as heard:
            eventually(lambda: heard.hints[0]._no_stream_until)
            settled(api, heard, eventually)
            assert worker.claim() == []
            api.rig.submit()
            eventually(lambda: heard.work)


def test_where_nothing_is_waited_for_it_does_not_ask_all_the_time(
    rig: Rig, tmp_path: Path, eventually: Eventually
) -> None:
    with opened(rig, tmp_path / "store", long_poll_s=0) as api, proxy(api.url) as between:
        worker = raw_worker(api)
        with hearing(between.url, worker) as heard:
            eventually(lambda: between.seen)
            assert not threading.Event().wait(1.0)
            assert len(between.seen) == 1
            heard.hints[0].wake()
            eventually(lambda: len(between.seen) == 2)


def test_a_server_that_is_away_is_not_asked_all_the_time(
    worker: RawWorker, eventually: Eventually
) -> None:
    asked: list[float] = []

    def ask(*_args: Any, **_more: Any) -> Any:  # noqa: ANN401  as the original
        asked.append(monotonic())
        raise NotAnswered("away", sent=True)

    with hearing("http://127.0.0.1:9", worker) as heard:
        heard.hints[0]._hear = ask  # type: ignore[method-assign]  # counts in its place
        eventually(lambda: len(asked) == 2)
    assert asked[1] - asked[0] > 1
