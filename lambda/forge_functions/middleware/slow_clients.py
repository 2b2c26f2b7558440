"""Protection against clients that never finish a request's head, or connect too often."""

import asyncio
import resource
from collections import Counter, defaultdict
from http import HTTPStatus
from typing import Any, ClassVar, cast

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from forge_functions.middleware.few_copies import SendingFiles
from forge_functions.middleware.turns import PATIENCE_S, TURNS, network_of

# Seconds from the first byte of a connection or request to the end of the head.
HEAD_WITHIN_S = 10.0
# Maximum number of connections per address that wait for a head.
MOST_OF_ADDRESS = 100
# Files and connections to the database and the store need descriptors too.
RESERVED = 128
MOST_CONNECTIONS = 10_000

log = structlog.get_logger(__name__)


def most_connections() -> int:
    """Raise the limit on open files and return how many connections this process can hold."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(RESERVED, min(MOST_CONNECTIONS, hard - RESERVED))


class Places:
    """The open connections of this process: all that it can hold, half of them for an address.

    A place belongs to a connection until its socket is closed, whatever it speaks by then.
    """

    def __init__(self) -> None:
        self.of_address: Counter[str] = Counter()
        self._all = 0

    def take(self, address: str, most: int) -> bool:
        """Count a connection, and return whether it may stay."""
        self._all += 1
        self.of_address[address] += 1
        return self.of_address[address] <= most // 2 and self._all <= most

    def give_back(self, address: str) -> None:
        """Count a connection out: its socket is closed."""
        self._all -= 1
        self.of_address[address] -= 1
        if not self.of_address[address]:
            del self.of_address[address]


PLACES = Places()


class GuardedWebSocket(WebSocketsSansIOProtocol):
    """Gives back the place of the connection that it takes over, and logs a broken handshake."""

    def connection_lost(self, exc: Exception | None) -> None:
        PLACES.give_back(network_of(_address(self.client)))
        super().connection_lost(exc)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            # It never reaches the app, which logs all others.
            path = event.path.partition("?")[0]
            log.info("request", method="GET", path=path, status=self.response.status_code)


class GuardedProtocol(H11Protocol):
    """Closes a connection whose head is late, and the oldest of those if there are too many.

    uvicorn would wait for a head forever.
    """

    # By address, oldest first.
    without_head: ClassVar[dict[str, dict["GuardedProtocol", None]]] = defaultdict(dict)
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own
        super().connection_made(transport)
        self.app = cast("Any", SendingFiles(cast("Any", self.app), self))
        wait_s = TURNS.connects(self._address)
        most = self.limit_concurrency or MOST_CONNECTIONS
        if not PLACES.take(network_of(self._address), most) or wait_s > PATIENCE_S:
            transport.abort()
        elif wait_s:
            transport.pause_reading()
            self.loop.call_later(wait_s, self._begin)
        else:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.head_came()
        PLACES.give_back(network_of(self._address))
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        # From here on, the place is the WebSocket's: this protocol hears nothing any more.
        self.head_came()
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            self.transport.abort()
            return
        super().send_400_response(msg)
        if self.cycle is not None:
            # The rest of a body cannot be read. The app's own answer would be an error now.
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state is not h11.IDLE:
            self.head_came()
        elif self._late is None and self.timeout_keep_alive_task is None:
            self._wait_for_head()

    def _begin(self) -> None:
        # Nothing was read until its turn came: it cost no more than its place.
        if not self.transport.is_closing():
            self._wait_for_head()
            self.transport.resume_reading()

    @property
    def _address(self) -> str:
        return _address(self.client)

    def _wait_for_head(self) -> None:
        self._late = self.loop.call_later(HEAD_WITHIN_S, self.transport.abort)
        waiting = self.without_head[self._address]
        waiting[self] = None
        if len(waiting) > MOST_OF_ADDRESS:
            oldest = next(iter(waiting))
            oldest.head_came()
            oldest.transport.abort()

    def head_came(self) -> None:
        """Stop waiting for the head."""
        if self._late is not None:
            self._late.cancel()
            self._late = None
            waiting = self.without_head[self._address]
            waiting.pop(self, None)
            if not waiting:
                del self.without_head[self._address]


def _address(client: tuple[str, int] | None) -> str:
    return client[0] if client else ""
