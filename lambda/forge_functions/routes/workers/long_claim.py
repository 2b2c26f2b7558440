"""Answers that wait without holding a thread or a connection: a claim, and a stream of hints."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import uniform
from time import monotonic

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import End, Ended, Grant
from forge_schema.model.states import Reason
from forge_schema.protocol.answers import Claimed
from forge_schema.protocol.messages import Claim
from forge_schema.queue.lanes import Lanes
from forge_schema.queue.queue import WorkerUnknown
from forge_schema.wake import ASKED, SHELL

from forge_functions.auth.worker import WorkerCaller, checked_again, own
from forge_functions.errors import Refused
from forge_functions.services import Services
from forge_functions.streams.hub import LEAVING, MISSED, READY, Ear, Hub

# Seconds between looks without a hint, since hints may be lost.
LOOK_S = 5.0
# Minimum seconds between looks, so that hints for others do not cause a flood of them.
SPACING_S = 0.1
GONE = "gone"

MEDIA_TYPE = "text/event-stream"
PING_S = 10.0
# Streams end after this time, so that tokens are checked again.
LASTS_S = 600.0


class LongClaim:
    """One request: claims at once, and again after every hint until its time is over."""

    def __init__(self, shared: Services, caller: WorkerCaller, claim: Claim) -> None:
        self._shared = shared
        self._caller = caller
        self._claim = claim
        self._hinted = claim.hinted
        # Whether it has looked before, and found nothing.
        self._looked = False

    async def run(self, request: Request) -> Claimed:
        """Return the outcomes of the ends, and the jobs granted.

        Raises:
            Refused: an end names a lease of another worker, or the token was replaced.
            WorkerUnknown: the worker must register.
        """
        wait_s = min(self._claim.wait_s, self._shared.settings.long_poll_s)
        if self._claim.ends or not self._claim.count or wait_s <= 0:
            return await run_in_threadpool(self._look)
        until = monotonic() + wait_s
        # Listen before the first look, so that no hint is missed in between.
        with self._shared.hub.ear(self._caller.id) as ear:
            async with _watched(request, ear) as gone:
                claimed = await self._wait(ear, until)
                # One that has a name is repeated and gets them again.
                if claimed.grants and gone.done() and self._claim.nonce is None:
                    await run_in_threadpool(self._give_back, claimed)
                return claimed

    async def _wait(self, ear: Ear, until: float) -> Claimed:
        claimed = await run_in_threadpool(self._look)
        while not claimed.grants and (left_s := until - monotonic()) > 0:
            heard = await ear.wait(min(left_s, LOOK_S))
            if heard & {GONE, LEAVING}:
                break
            # The hub tells the matching too, with the moment when it heard.
            self._hinted = False
            self._caller = await run_in_threadpool(checked_again, self._shared, self._caller)
            if ASKED in heard or self._caller.command:
                break
            claimed = await run_in_threadpool(self._look)
            await asyncio.sleep(0 if claimed.grants else SPACING_S)
        return claimed

    def _look(self) -> Claimed:
        claim, caller = self._claim, self._caller
        ends = [end.end() for end in claim.ends]
        own(self._shared, caller, [end.fence for end in ends])
        stale = claim.boot_id != caller.boot_id
        if stale and not ends:
            raise WorkerUnknown(f"worker {caller.id} has a newer boot", hint="register again")
        count = 0 if stale or caller.command else claim.count
        if not ends and not count and not claim.repeated:
            return Claimed()
        return self._exchange(ends, count)

    def _exchange(self, ends: list[End], count: int) -> Claimed:
        shared, caller, free = self._shared, self._caller, self._claim.free
        warm = self._claim.warm
        if not count and not self._claim.repeated:
            return self._finish(ends)
        sleepers, nonce = shared.hub.sleepers, self._claim.nonce
        repeated, offered = self._repeats()
        with shared.matching.lanes(shared.database, caller.id, self._claim.boot_id) as lanes:
            if self._hinted:
                lanes.doubt()
            if count:
                sleepers.looks(caller.id, free, count=count, warm=warm, recorded=repeated)
            elif caller.address is not None:
                # No gang is given this worker from here on.
                sleepers.rise(shared.database, caller.id)
            ended, grants = shared.queue(caller.actor).finish_and_claim(
                ends,
                lanes,
                free,
                count=count,
                warm=warm,
                nonce=nonce,
                repeated=repeated,
                offered=offered,
            )
            if count:
                grants = self._slept(lanes, grants, known=repeated or offered)
        return self._claimed(ended, grants)

    def _repeats(self) -> tuple[bool, bool]:
        """Return whether this look repeats another one of its name, unanswered or answered."""
        before, self._looked = self._looked, True
        offers = self._claim.nonce is not None and self._caller.address is not None
        return self._claim.repeated and not before, offers and before

    def _slept(self, lanes: Lanes, grants: list[Grant], *, known: bool) -> list[Grant]:
        """Record whether the worker sleeps; return what it was granted, by now."""
        shared, caller, nonce = self._shared, self._caller, self._claim.nonce
        offers = caller.address is not None and lanes.offers and not grants
        taken = shared.hub.sleepers.looked(
            shared.database,
            caller.id,
            self._claim.free,
            has_jobs=bool(grants),
            nonce=nonce if offers else None,
        )
        if taken and known and nonce is not None:
            return shared.queue(caller.actor).with_gangs(lanes, nonce, grants)
        return grants

    def _finish(self, ends: list[End]) -> Claimed:
        return self._claimed(self._shared.finishing.finish(ends), [])

    def _claimed(self, ended: list[Ended], grants: list[Grant]) -> Claimed:
        self._shared.exchanged(len(ended), len(grants))
        if not all(end.over for end in ended):
            self._shared.matching.came_back()
        return Claimed(ended=ended, grants=grants)

    def _give_back(self, claimed: Claimed) -> None:
        """Give back jobs granted to a caller who left; otherwise they would wait for their TTL."""
        why = "the claiming worker had disconnected"
        ends = [End(grant.fence, Reason.DRAINED, detail=why) for grant in claimed.grants]
        with suppress(ForgeError):
            self._shared.queue(self._caller.actor).finish(ends)


@asynccontextmanager
async def _watched(request: Request, ear: Ear) -> AsyncIterator[asyncio.Task[None]]:
    """Wake the ear when the caller disconnects."""

    async def until_gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        ear.tell(GONE)

    watching = asyncio.create_task(until_gone())
    try:
        yield watching
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


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
