"""Turns of an address: a stranger who comes too often waits, and nobody else notices."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest
from forge_functions.middleware import slow_clients, turns
from forge_functions.middleware.admission import Buckets
from forge_functions.middleware.turns import AddressTurns, TakingTurns, network_of
from support.http.api import good, opened, problem
from support.http.http_worker import raw_worker
from support.http.server import listening

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.types import Receive, Scope, Send
    from support.queue.rig import Rig

STRANGER, OTHER, PROXY = "127.0.0.3", "127.0.0.4", "127.0.0.1"
BEAT = "/api/v1/workers/heartbeat"
FORWARDED = "198.51.100.7"


class Stopped(AddressTurns):
    """Turns that never come back: each address has three."""

    def __init__(self, proxies: str = PROXY) -> None:
        super().__init__(proxies)
        self.buckets = Buckets(1.0, 3, clock=lambda: 0.0)


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Stopped:
    made = Stopped()
    monkeypatch.setattr(turns, "TURNS", made)
    monkeypatch.setattr(turns, "PATIENCE_S", 0.0)
    monkeypatch.setattr(TakingTurns.__init__, "__defaults__", (made,))
    return made


@contextmanager
def client(url: str, address: str, **options: object) -> Iterator[httpx.Client]:
    """Connections from an address of this machine, which a server takes for another one."""
    way = httpx.HTTPTransport(local_address=address)
    with httpx.Client(transport=way, base_url=url, timeout=60, **options) as made:  # type: ignore[arg-type]
        yield made


@pytest.mark.usefixtures("stopped")
def test_strangers_have_turns_by_address_and_known_callers_as_many_as_they_like(
    rig: Rig, tmp_path: Path
) -> None:
    with opened(rig, tmp_path / "store") as api:
        ann, worker = api.key(), raw_worker(api)
        beat = {"boot_id": str(worker.boot_id), "status": "idle", "leases": []}
        with client(api.url, STRANGER) as stranger, client(api.url, OTHER) as other:
            for _ in range(3):
                problem(stranger.get("/api/v1/me"), 401, "unauthenticated")
            told = stranger.get("/api/v1/me")
            problem(told, 429, "too_many_requests")
            assert int(told.headers["retry-after"]) > 0
            assert told.headers["connection"] == "close"
            for _ in range(6):
                good(other.get("/api/v1/me", headers=ann.headers))
                good(other.post(BEAT, headers=worker.headers, json=beat))
            assert other.get("/health").is_success


@pytest.mark.usefixtures("stopped")
def test_handshakes_and_forwarded_addresses_take_turns_too(rig: Rig, tmp_path: Path) -> None:
    with opened(rig, tmp_path / "store") as api:
        upgrade = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            "X-Forwarded-For": FORWARDED,
        }
        with client(api.url, PROXY) as proxy:
            for _ in range(3):
                assert proxy.get("/api/v1/queue/shells", headers=upgrade).status_code == 403
            shut = proxy.get("/health", headers={"X-Forwarded-For": FORWARDED})
            problem(shut, 429, "too_many_requests")
            assert proxy.get("/health", headers={"X-Forwarded-For": "198.51.100.8"}).is_success
            for _ in range(6):
                assert proxy.get("/health").is_success


@pytest.mark.usefixtures("stopped")
def test_a_known_caller_who_goes_on_after_refusals_has_turns(rig: Rig, tmp_path: Path) -> None:
    with opened(rig, tmp_path / "store", caller_rate=0.1) as api:
        ann = api.key()
        with client(api.url, STRANGER, headers=ann.headers) as eager:
            answers = [eager.get("/api/v1/me") for _ in range(6)]
        assert [one.status_code for one in answers] == [200, 429, 429, 429, 429, 429]
        hints = [one.json()["message"] for one in answers[1:]]
        assert ["address" in one for one in hints] == [False, False, True, True, True]


def test_a_connection_is_not_read_before_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        asked.append(scope["client"][0])
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    made = AddressTurns(PROXY)
    now = [0.0]
    made.buckets = Buckets(1000.0, 2, patience_s=1.0, clock=lambda: now[0])
    monkeypatch.setattr(slow_clients, "TURNS", made)
    monkeypatch.setattr(slow_clients, "PATIENCE_S", 1.0)
    with listening(app, lifespan="off", http=slow_clients.GuardedProtocol) as url:
        for _ in range(5):
            with client(url, STRANGER) as stranger:
                assert stranger.get("/").status_code == 204
        made.buckets = Buckets(1.0, 1, patience_s=0.5, clock=lambda: now[0])
        monkeypatch.setattr(slow_clients, "PATIENCE_S", 0.5)
        with client(url, STRANGER) as kept:
            assert kept.get("/").status_code == 204
            with client(url, STRANGER) as more, pytest.raises(httpx.TransportError):
                more.get("/")
            assert kept.get("/").status_code == 204
        with client(url, PROXY) as proxy, client(url, PROXY) as another:
            assert (proxy.get("/").status_code, another.get("/").status_code) == (204, 204)
    assert asked == [STRANGER] * 7 + [PROXY] * 2


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("unix", "", False),
    ],
)
def test_an_ipv6_network_is_one_address(one: str, other: str, same: bool) -> None:  # noqa: FBT001  a case of the table
    assert (network_of(one) == network_of(other)) is same


def test_a_caller_with_too_little_time_takes_no_turn() -> None:
    now = [0.0]
    buckets = Buckets(2.0, 2, patience_s=1.0, clock=lambda: now[0])
    assert [buckets.take("a") for _ in range(6)] == [0, 0, 0.5, 1.0, 1.5, 1.5]
    buckets.give_back("a")
    assert buckets.take("a") == 1.0
    now[0] += 10
    buckets.owe("a")
    assert [buckets.take("a") for _ in range(2)] == [0, 0.5]
    assert buckets.take("b", cost=7.0) == 0
    now[0] += 2.5
    assert buckets.take("b") == 0.5
