"""Hints to a worker: events as they come, or one answer after a wait."""

from collections.abc import AsyncIterator
from random import uniform
from time import monotonic

from forge_functions.hub import ASKED, LEAVING, MISSED, READY, Hub

MEDIA_TYPE = "text/event-stream"
PING_S = 10.0
# Whoever streams shows its token again now and then.
LASTS_S = 600.0


async def events(hub: Hub, worker_id: int) -> AsyncIterator[bytes]:
    """Yield server-sent events, each named by its hint, until the process or the time ends."""
    until = monotonic() + LASTS_S * uniform(0.8, 1.2)  # noqa: S311 - no secret hangs on it
    with hub.ear(worker_id) as ear:
        # Proxies pass nothing on, and no caller knows that it is heard, before the first byte.
        yield b": hello\n\n"
        while monotonic() < until:
            heard = await ear.wait(PING_S)
            if LEAVING in heard:
                return
            yield b"".join(_event(hint) for hint in _known(heard)) or b": ping\n\n"


async def next_hints(hub: Hub, worker_id: int, wait_s: float) -> list[str]:
    """Return what is heard first, or nothing after `wait_s` seconds."""
    with hub.ear(worker_id) as ear:
        return _known(await ear.wait(wait_s))


def _known(heard: set[str]) -> list[str]:
    """Return the hints that a worker knows."""
    return sorted(heard & {READY, ASKED} if MISSED not in heard else {READY, ASKED})


def _event(hint: str) -> bytes:
    return f"event: {hint}\ndata: {{}}\n\n".encode()
