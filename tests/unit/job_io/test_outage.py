"""A tracker's server may be away: the job neither waits nor fails, and nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_worker.integrations import tracked
from forge_worker.integrations.tracked import TrackerOutage

if TYPE_CHECKING:
    from collections.abc import Callable


class Server:
    """Answers or not, as the test says, and remembers what it was sent."""

    def __init__(self) -> None:
        self.has: list[object] = []
        self.dropped: list[object] = []
        self.tries = 0
        self.away = False
        self.seconds = 1000.0
        self.outage = TrackerOutage(
            "the server", lambda error: isinstance(error, OSError), self._drop
        )

    def log(self, value: object) -> str:
        self.tries += 1
        if self.away:
            raise ConnectionRefusedError("nobody listens")
        if value == "bad":
            raise ValueError("refused")
        self.has.append(value)
        return f"took {value}"

    def _drop(self, method: str, value: object) -> None:
        assert method == "log"
        self.dropped.append(value)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(tracked, "monotonic", lambda: made.seconds)
    return made


@pytest.fixture
def log(server: Server) -> Callable[[object], object]:
    return server.outage.bridged(server.log)


def test_what_is_logged_waits_for_the_server_and_arrives_in_order(
    server: Server, log: Callable[[object], object], capfd: pytest.CaptureFixture[str]
) -> None:
    assert log(1) == "took 1"
    server.away = True
    assert [log(2), log(3), log(4)] == [None, None, None]
    # It is asked once, and then left alone for a while.
    assert (server.tries, server.dropped) == (2, [2, 3, 4])
    server.away = False
    assert log(5) is None
    server.seconds += tracked.PAUSE_S
    assert log(6) == "took 6"
    assert server.has == [1, 2, 3, 4, 5, 6]
    said = capfd.readouterr().err.splitlines()
    assert [line.split(";")[0].split(",")[0] for line in said] == [
        "forge: the server does not answer",
        "forge: the server answers again",
    ]


def test_an_answer_that_refuses_is_the_programs_error(
    server: Server, log: Callable[[object], object]
) -> None:
    with pytest.raises(ValueError, match="refused"):
        log("bad")
    assert log(1) == "took 1"
    server.away = True
    log("bad")
    log(2)
    server.away = False
    server.seconds += tracked.PAUSE_S
    # Nobody hears any more of one that waited.
    assert log(3) == "took 3"
    assert server.has == [1, 2, 3]


@pytest.mark.parametrize("back", [True, False])
def test_the_end_of_a_run_is_tried_at_once_and_fails_nothing(
    server: Server,
    log: Callable[[object], object],
    capfd: pytest.CaptureFixture[str],
    *,
    back: bool,
) -> None:
    server.away = True
    log(1)
    server.away = not back
    end = server.outage.bridged(server.log, last=True)
    assert end("end") == ("took end" if back else None)
    assert server.has == ([1, "end"] if back else [])
    assert ("It lacks what was logged" in capfd.readouterr().err) is not back
