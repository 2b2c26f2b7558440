"""The attacks of a review of the server, each beside what another caller sees of it meanwhile."""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import psycopg
from forge_schema.access import tokens
from forge_schema.access.tokens import TokenKind

from benchmarks.fleet.server import Server
from benchmarks.fleet.world import Simulated
from benchmarks.server.messages import beat, look, submission
from benchmarks.server.wire import Answer, Wire, connect, hear

REPORT = "/api/v1/reports/attempt_history"
CHECK = "/api/v1/queue/check"
HALF = b"GET /health HTTP/1.1\r\nHost: forge\r\nX-Slow: "
CODE = b"the code of ann"
DIGEST = hashlib.sha256(CODE).hexdigest()
FLOOD, UNKNOWN, HALVES, STREAMS, SUBMITS = 24, 150_000, 1_100, 955, 20
NOWHERE = {"zone": "nowhere"}
Headers = dict[str, str]


@dataclass(frozen=True)
class Figure:
    """What was measured, before and under the attack; `review` is what a review saw earlier."""

    attack: str
    what: str
    review: str
    alone: str
    under: str


@dataclass
class Site:
    """A server, some workers, and the headers of some users."""

    server: Server
    fleet: list[Simulated]
    users: dict[str, Headers]
    # Where strangers come in: the server's own address, or that of a proxy.
    entrance: str = ""
    wire: Wire = field(init=False)

    def __post_init__(self) -> None:
        self.entrance = self.entrance or self.server.base
        self.wire = Wire(self.server.base)

    async def health(self) -> Answer:
        return await self.wire.ask("GET", "/health", {})

    async def beat(self, worker: Simulated) -> Answer:
        path = "/api/v1/workers/heartbeat"
        return await self.wire.ask("POST", path, own(worker), beat(worker))

    async def look(self, worker: Simulated, *, hinted: bool) -> Answer:
        path = "/api/v1/workers/claim"
        return await self.wire.ask("POST", path, own(worker), look(worker, hinted=hinted))


def own(worker: Simulated) -> Headers:
    """Return a worker's headers."""
    return {"X-Worker-Token": worker.token}


async def timed(ask: Callable[[], Awaitable[Answer]], times: int, pause_s: float = 0.0) -> str:
    """Repeat a request that must succeed; return the usual and the longest milliseconds."""
    took = []
    for _ in range(times):
        began = perf_counter()
        answer = await ask()
        assert answer.status in {200, 503}, answer
        took.append(1000 * (perf_counter() - began))
        await asyncio.sleep(pause_s)
    return f"{median(took):.0f} ms, at most {max(took):.0f}"


def counted(answers: list[Answer]) -> str:
    """Return how many answers had each status."""
    return ", ".join(f"{n} x {status}" for status, n in Counter(a.status for a in answers).items())


async def starve(site: Site) -> AsyncIterator[Figure]:
    """A viewer asks for many reports and lists, and the table of attempts is locked."""
    worker, bob = site.fleet[0], site.users["bob"]
    alone = await timed(lambda: site.beat(worker), 20)
    with psycopg.connect(site.server.url) as gate:
        gate.execute("LOCK TABLE attempt_row")
        floods = [
            asyncio.create_task(site.wire.ask("GET", path, bob))
            for path in (REPORT, "/api/v1/queue/jobs?state=failed")
            for _ in range(FLOOD)
        ]
        await asyncio.sleep(1)
        under = await timed(lambda: site.beat(worker), 20)
        refused = [one.result() for one in floods if one.done()]
        waiting = len(floods) - len(refused)
    await asyncio.gather(*floods)
    yield Figure("starve", "heartbeat of another's worker", "10 ms → 14,800 ms", alone, under)
    seen = f"{waiting} wait; {counted(refused)}"
    yield Figure("", f"{FLOOD} reports and {FLOOD} lists of the viewer", "24 wait", "", seen)


async def stall(site: Site) -> AsyncIterator[Figure]:
    """A viewer sends bodies of very many unknown keys."""
    one = {f"k{n}": 1 for n in range(UNKNOWN)}
    spread = [{f"k{n}": 1 for n in range(UNKNOWN // 50)} for _ in range(50)]
    alone = await timed(site.health, 20)
    for what, jobs in (("in one object", [one]), ("in fifty objects", spread)):
        body = json.dumps({"jobs": jobs}).encode()
        async with _memory(site.server) as used:
            bodies = [
                asyncio.create_task(site.wire.ask("POST", CHECK, site.users["ann"], body))
                for _ in range(3)
            ]
            under = await timed(site.health, 40, 0.02)
            answers = await asyncio.gather(*bodies)
        review = "6 ms → 2,161 ms" if jobs is not spread else "not tried"
        told = f"{under}; {counted(answers)}"
        yield Figure("stall", f"/health; 3 x {len(body):,} bytes, {what}", review, alone, told)
        grown = f"{used[0]:.0f} MB → {max(used):.0f} MB"
        review = "94 MB → 233 MB" if jobs is not spread else "not tried"
        yield Figure("", "the server's memory", review, "", grown)


@asynccontextmanager
async def _memory(server: Server) -> AsyncIterator[list[float]]:
    """Note the server's memory in MB again and again while the block runs."""
    used: list[float] = []

    async def look_on() -> None:
        while True:
            used.append(server.seen.memory_info().rss / 1e6)
            await asyncio.sleep(0.02)

    looking = asyncio.create_task(look_on())
    await asyncio.sleep(0.1)
    try:
        yield used
    finally:
        looking.cancel()


async def slow(site: Site) -> AsyncIterator[Figure]:
    """One address sends heads that do not end, and one worker opens very many streams."""
    alone = await timed(site.health, 20)
    ends = [asyncio.create_task(_half(site.server.base)) for _ in range(HALVES)]
    await asyncio.sleep(3)
    under = await timed(site.health, 20)
    still = sum(not one.done() for one in ends)
    await asyncio.sleep(12)
    left = sum(not one.done() for one in ends)
    what = f"/health beside {HALVES:,} half-sent heads"
    yield Figure("slow", what, "no answer at 0, 5, 20, 35 and 70 s", alone, under)
    kept = f"{still} after 3 s, {left} after 15 s"
    yield Figure("", "of these connections open", "1,024 for good", "", kept)
    token = site.fleet[0].token
    streams = [asyncio.create_task(_stream(site.server.base, token)) for _ in range(STREAMS)]
    await asyncio.sleep(10)
    left = sum(not one.done() for one in streams)
    yield Figure("", f"of {STREAMS} streams of one worker open", str(STREAMS), "", str(left))
    for task in (*ends, *streams):
        task.cancel()
    await asyncio.gather(*ends, *streams, return_exceptions=True)


async def _half(base: str) -> None:
    """Send a head in drops until the server hangs up."""
    try:
        reader, writer = await connect(base)
        writer.write(HALF)
        while True:
            try:
                async with asyncio.timeout(1):
                    if not await reader.read(1):
                        return
            except TimeoutError:
                writer.write(b"x")
    except OSError:
        return


async def _stream(base: str, token: str) -> None:
    try:
        await hear(base, token, lambda _line: None)
    except OSError:
        return


async def _listen(
    site: Site,
    worker: Simulated,
    told: asyncio.Event,
    heard: Callable[[Simulated, bytes], None],
) -> None:
    """Hold a worker's stream; `told` is set at its first line."""

    def line(said: bytes) -> None:
        told.set()
        heard(worker, said)

    await hear(site.server.base, worker.token, line)


async def herd(site: Site) -> AsyncIterator[Figure]:
    """Every submit is of a job that no worker can run, while all workers are idle."""
    claims: list[asyncio.Task[Answer]] = []

    def heard(worker: Simulated, line: bytes) -> None:
        if line.startswith(b"event: ready"):
            claims.append(asyncio.create_task(site.look(worker, hinted=True)))

    streams = []
    for one in site.fleet:
        told = asyncio.Event()
        streams.append(asyncio.create_task(_listen(site, one, told, heard)))
        await told.wait()
    for one in site.fleet:
        answer = await site.look(one, hinted=False)
        assert answer.status == 200, answer
    await asyncio.sleep(1)
    alone = await timed(lambda: site.beat(site.fleet[0]), 20)
    for who, labels, review in (("no", NOWHERE, True), ("any", {}, False)):
        claims.clear()
        took = []
        for _ in range(SUBMITS):
            began = perf_counter()
            path, body = "/api/v1/queue/submit", submission(labels=labels)
            answer = await site.wire.ask("POST", path, site.users["ann"], body)
            assert answer.status == 200, answer
            took.append(1000 * (perf_counter() - began))
            await asyncio.sleep(0.5)
        what = f"claims per submit; {len(site.fleet)} are idle, {who} worker can run it"
        seen = f"{len(claims) / SUBMITS:.2f}"
        yield Figure("herd" if review else "", what, "50 and more" if review else "", "", seen)
        last = f"{median(took):.0f} ms, at most {max(took):.0f}"
        yield Figure("", "the submit", "53 ms → 1,070 ms (p95)" if review else "", "", last)
    under = await timed(lambda: site.beat(site.fleet[0]), 20)
    yield Figure("", "a heartbeat afterwards", "", alone, under)
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, *claims, return_exceptions=True)


async def lock_out(site: Site) -> AsyncIterator[Figure]:
    """Somebody with the worker's address tries wrong tokens of the worker."""
    worker = site.fleet[0]
    wrong = {"X-Worker-Token": tokens.mint(TokenKind.WORKER, str(worker.id))[0]}
    path = "/api/v1/workers/heartbeat"
    tries = [await site.wire.ask("POST", path, wrong, beat(worker)) for _ in range(30)]
    right = await site.beat(worker)
    yield Figure("lock-out", "30 wrong tokens", "10 x 401, 20 x 429", "", counted(tries))
    yield Figure("", "then the right one", "429", "", str(right.status))


async def digest(site: Site) -> AsyncIterator[Figure]:
    """A user runs another's code, knowing its SHA-256."""
    ann, eve = site.users["ann"], site.users["eve"]
    offer = await _offered(site, ann)
    place = urlsplit(offer["url"])
    path = f"{place.path}?{place.query}"
    sent = await site.wire.ask(str(offer["method"]), path, dict(offer["headers"]), CODE)
    assert sent.status in {200, 201, 204}, sent
    body = submission(bundle_digest=DIGEST)
    answers = [await site.wire.ask("POST", "/api/v1/queue/submit", who, body) for who in (ann, eve)]
    yield Figure("digest", "submit with one's own digest", "200", "", str(answers[0].status))
    stolen = str(answers[1].status)
    yield Figure("", "submit with another's digest", "200, and the code", "", stolen)
    told = str((await _offered(site, eve))["stored"])
    yield Figure("", "stored, as another is told", "True", "", told)


async def _offered(site: Site, user: Headers) -> Any:  # noqa: ANN401  whatever JSON holds
    body = json.dumps({"digest": DIGEST, "bytes": len(CODE)}).encode()
    answer = await site.wire.ask("POST", "/api/v1/bundles", user, body)
    return json.loads(answer.body)


ATTACKS = {
    "starve": starve,
    "stall": stall,
    "slow": slow,
    "herd": herd,
    "lock-out": lock_out,
    "digest": digest,
}
