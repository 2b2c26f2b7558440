"""Protection against clients that never finish a request's head, or connect too often."""

import asyncio
import resource
from collections import Counter, defaultdict
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# Seconds from the first byte of a connection or request to the end of the head.
HEAD_WITHIN_S = 10.0
# Maximum number of connections per address that wait for a head.
MOST_OF_ADDRESS = 100
# Files and connections to the database and the store need descriptors too.
RESERVED = 128
MOST_CONNECTIONS = 10_000


def most_connections() -> int:
    """Raise the limit on open files and return how many connections this process can hold."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(RESERVED, min(MOST_CONNECTIONS, hard - RESERVED))


class GuardedProtocol(H11Protocol):
    """Closes a connection whose head is late, and the oldest of those if there are too many.

    uvicorn would wait for a head forever. An address may have half of all connections.
    """

    # By address, oldest first.
    without_head: ClassVar[dict[str, dict["GuardedProtocol", None]]] = defaultdict(dict)
    of_address: ClassVar[Counter[str]] = Counter()
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own
        super().connection_made(transport)
        self.of_address[self._address] += 1
        if self.of_address[self._address] > (self.limit_concurrency or MOST_CONNECTIONS) // 2:
            transport.abort()
        else:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.head_came()
        self.of_address[self._address] -= 1
        if not self.of_address[self._address]:
            del self.of_address[self._address]
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state is not h11.IDLE:
            self.head_came()
        elif self._late is None and self.timeout_keep_alive_task is None:
            self._wait_for_head()

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

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
