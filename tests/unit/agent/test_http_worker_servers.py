"""Which of several servers a worker asks, and how long it avoids one that failed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.errors import ForgeError
from forge_worker.circuit_breaker import CircuitOpen, NotAnswered, Servers, ServerUnreachable

FIRST, SECOND, THIRD = "http://first", "http://second", "http://third"


@dataclass
class Net:
    """Servers that answer or fail, on a clock that a test sets ahead."""

    down: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    now: float = 1000.0
    sent: bool = False
    rest_s: float = 0.0

    def servers(self, *urls: str, longest_pause_s: float = 8.0) -> Servers:
        return Servers(urls, longest_pause_s=longest_pause_s, clock=lambda: self.now)

    def question(self, url: str) -> str:
        self.asked.append(url)
        if url in self.down:
            raise NotAnswered("refused", sent=self.sent, rest_s=self.rest_s)
        return url

    def heard(self) -> list[str]:
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def net() -> Net:
    return Net()


def test_the_first_is_asked_while_it_answers(net: Net) -> None:
    servers = net.servers(FIRST, SECOND)
    assert [servers.ask(net.question) for _ in range(3)] == [FIRST] * 3
    assert net.heard() == [FIRST] * 3


def test_the_next_is_asked_when_one_fails_and_the_first_again_after_a_while(net: Net) -> None:
    servers = net.servers(FIRST, SECOND, THIRD)
    net.down = {FIRST, SECOND}
    assert servers.ask(net.question) == THIRD
    assert net.heard() == [FIRST, SECOND, THIRD]
    assert servers.ask(net.question) == THIRD
    assert net.heard() == [THIRD]
    net.down.clear()
    net.now += 1.0
    assert servers.ask(net.question) == FIRST


def test_a_server_rests_longer_each_time_up_to_the_limit(net: Net) -> None:
    servers = net.servers(FIRST, SECOND)
    net.down = {FIRST}
    rests = []
    for _ in range(8):
        servers.ask(net.question)
        server = servers._servers[0]
        rests.append(server.rests_until - net.now)
        net.now = server.rests_until
    limits = [1, 2, 4, 8, 8, 8, 8, 8]
    assert all(limit / 2 <= rest <= limit for rest, limit in zip(rests, limits, strict=True))
    assert len(set(rests)) == 8
    net.down.clear()
    servers.ask(net.question)
    assert servers._servers[0].failures == 0


def test_no_server_is_asked_while_all_rest(net: Net) -> None:
    servers = net.servers(FIRST, SECOND)
    net.down = {FIRST, SECOND}
    with pytest.raises(ServerUnreachable, match="http://first and http://second: refused"):
        servers.ask(net.question)
    net.heard()
    with pytest.raises(CircuitOpen, match="http://first and http://second: refused"):
        servers.ask(net.question)
    assert net.heard() == []
    # The worker waits for it as it waits for the database.
    assert issubclass(ServerUnreachable, DatabaseUnreachable)


def test_a_server_is_tried_again_by_one_at_a_time(net: Net) -> None:
    servers = net.servers(FIRST, SECOND)
    net.down = {FIRST}
    servers.ask(net.question)
    net.now += 1.0
    net.heard()

    def slow(url: str) -> str:
        # Another asks while this one waits for the first.
        if url == FIRST:
            assert servers.ask(net.question) == SECOND
        return net.question(url)

    assert servers.ask(slow) == SECOND
    assert net.heard() == [SECOND, FIRST, SECOND]


def test_many_that_fail_together_are_one_failure(net: Net) -> None:
    servers = net.servers(FIRST, SECOND)

    def fail(url: str, then: int = 20) -> str:
        # While this one is on its way, others set out, and fail first.
        if url == FIRST:
            if then:
                servers.ask(lambda url: fail(url, then - 1))
            net.now += 0.001
            raise NotAnswered("refused", sent=False)
        return url

    servers.ask(fail)
    assert servers._servers[0].failures == 1


def test_what_may_have_been_done_is_asked_of_no_second_one_unless_it_may_be_repeated(
    net: Net,
) -> None:
    net.down, net.sent = {FIRST}, True
    assert net.servers(FIRST, SECOND).ask(net.question) == SECOND
    with pytest.raises(ServerUnreachable):
        net.servers(FIRST, SECOND).ask(net.question, repeatable=False)
    net.sent = False
    assert net.servers(FIRST, SECOND).ask(net.question, repeatable=False) == SECOND


def test_a_server_that_wants_to_be_left_alone_is(net: Net) -> None:
    servers = net.servers(FIRST, SECOND)
    net.down, net.rest_s = {FIRST}, 60.0
    servers.ask(net.question)
    net.down.clear()
    net.now += 59.0
    assert servers.ask(net.question) == SECOND
    net.now += 1.0
    assert servers.ask(net.question) == FIRST


def test_a_refusal_is_an_answer(net: Net) -> None:
    servers = net.servers(FIRST, SECOND)
    net.down = {FIRST}
    servers.ask(net.question)
    net.now += 1.0

    def refuse(url: str) -> str:
        raise ForgeError(url)

    with pytest.raises(ForgeError, match="first"):
        servers.ask(refuse)
    net.down.clear()
    assert servers.ask(net.question) == FIRST


def test_what_does_not_count_has_no_server_rest_and_asks_no_other(net: Net) -> None:
    servers = net.servers(FIRST, SECOND)
    net.down, net.sent = {FIRST}, True
    with pytest.raises(ServerUnreachable):
        servers.ask(net.question, counts=False)
    net.down.clear()
    assert servers.ask(net.question) == FIRST
    assert net.heard() == [FIRST, FIRST]
