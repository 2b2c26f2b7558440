"""Hints to a worker: a stream of events, or one answer after a wait."""

from collections.abc import AsyncIterator
from random import uniform
from time import monotonic

from fastapi.concurrency import run_in_threadpool
from forge_schema.model.errors import ForgeError
from forge_schema.wake.hint import ASKED, SHELL

from forge_functions.auth.worker import WorkerCaller, checked_again
from forge_functions.errors import Refused
from forge_functions.services import Services
from forge_functions.streams.hub import LEAVING, MISSED, READY, Hub

MEDIA_TYPE = "text/event-stream"
PING_S = 10.0
# Streams end after this time, so that tokens are checked again.
LASTS_S = 600.0


async def events(shared: Services, caller: WorkerCaller) -> AsyncIterator[bytes]:
    """Yield server-sent events, each named after its hint.

    The stream ends when the process stops, after its time, and when the caller's token is replaced.
    """
    until = monotonic() + LASTS_S * uniform(0.8, 1.2)  # noqa: S311 - not security-relevant
    with shared.hub.stream(caller.id) as ear:
        # Proxies forward nothing, and callers see no answer, before the first byte.
        yield b": hello\n\n"
        while monotonic() < until:
            heard = await ear.wait(PING_S)
            hints = _known(heard)
            if LEAVING in heard or (ASKED in hints and not await _known_still(shared, caller)):
                return
            yield b"".join(_event(hint) for hint in hints) or b": ping\n\n"


async def next_hints(hub: Hub, worker_id: int, wait_s: float) -> list[str]:
    """Return the first hints, or none after `wait_s` seconds."""
    with hub.ear(worker_id) as ear:
        return _known(await ear.wait(wait_s))


async def _known_still(shared: Services, caller: WorkerCaller) -> bool:
    try:
        await run_in_threadpool(checked_again, shared, caller)
    except ForgeError as error:
        # If the database does not answer now, the next request tries again.
        return not isinstance(error, Refused)
    return True


def _known(heard: set[str]) -> list[str]:
    """Return the hints that a worker knows."""
    shells = {hint for hint in heard if hint.startswith(f"{SHELL}:")}
    return sorted(shells | (heard & {READY, ASKED} if MISSED not in heard else {READY, ASKED}))


def _event(hint: str) -> bytes:
    return f"event: {hint}\ndata: {{}}\n\n".encode()
