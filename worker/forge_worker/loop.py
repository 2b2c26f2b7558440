"""A loop that repeats one step until it is stopped, in its own thread or in those of the rounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import ceil
from queue import Empty, SimpleQueue
from random import uniform
from threading import Condition, Event, Thread, current_thread, local
from time import monotonic
from typing import TYPE_CHECKING, Protocol

import structlog
from forge_schema.model.errors import ForgeError

from forge_worker.circuit_breaker import CircuitOpen

if TYPE_CHECKING:
    from threading import Event


# How long a thread waits for another call.
IDLE_S = 10.0

# A thread's name during a call, and the call.
Work = tuple[str, Callable[[], None]]

# Turns are due at multiples of this, so that one wake-up serves the loops of many jobs.
TICK_S = 0.1
# How long a loop waits when the machine cannot start another thread.
NO_THREAD_S = 1.0
AFTER_FAILURE_S = 3.0
# Checking whether the servers are still backing off is cheap.
WHILE_THEY_REST_S = 1.0

log = structlog.get_logger(__name__)


class _Own(local):
    """Of each thread: the queue of its calls, twice once its next call may be put there."""

    calls: SimpleQueue[Work] | None = None
    reused: SimpleQueue[Work] | None = None


class SpareThreads:
    """Makes each call in a thread that has none; one whose call has ended may get another.

    Starting a thread takes longer than a job's share of a claim. They are daemon threads: a hanging
    call must not keep the process alive when the machine goes.
    """

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Work]] = []
        self._own = _Own()

    @property
    def idle(self) -> int:
        """How many threads wait for a call."""
        return len(self._idle)

    def start(self, name: str, call: Callable[[], None]) -> None:
        """Have a thread make a call; `RuntimeError` if the machine cannot start another thread."""
        reused, self._own.reused = self._own.reused, None
        try:
            idle = reused or self._idle.pop()
        except IndexError:
            Thread(target=self._serve, args=((name, call),), daemon=True).start()
        else:
            idle.put((name, call))

    def reuse(self) -> None:
        """Have this thread, whose call is about to end, make the next call that it starts."""
        self._own.reused = self._own.calls

    def _serve(self, work: Work | None) -> None:
        mine: SimpleQueue[Work] = SimpleQueue()
        self._own.calls = mine
        while work is not None:
            current_thread().name, call = work
            try:
                call()
            except Exception:
                # Another call may wait for this thread.
                log.exception("call_failed", thread=current_thread().name)
            current_thread().name = "idle"
            # An ended job's folders and results are not kept for the next one.
            del call, work
            if mine.empty():
                self._own.reused = None
                self._idle.append(mine)
            work = self._next(mine)

    def _next(self, mine: SimpleQueue[Work]) -> Work | None:
        try:
            return mine.get(timeout=IDLE_S)
        except Empty:
            try:
                self._idle.remove(mine)
            except ValueError:
                # It has just been chosen.
                return mine.get()
            return None


class Turns(Protocol):
    """A loop; `over` is set after its last turn, and no turn of a `quick` one blocks."""

    name: str
    over: Event
    quick: bool

    @property
    def ending(self) -> bool: ...

    @property
    def awake(self) -> bool:
        """Whether it was woken since its last turn began."""

    def turn(self) -> float:
        """Take one turn, and return the seconds until the next."""

    def idle(self) -> bool:
        """Tell, without blocking, whether a turn would find nothing to do."""

    def pause_s(self) -> float: ...


class Rounds:
    """Has each of its loops take turns until it ends. Thread-safe.

    One thread waits until a loop is due and looks whether it has anything to do; most loops of a
    quiet job have not. The turn is then taken in another thread: one that is idle, or else a new
    one. So a turn that hangs, as with a store that does not answer, delays no other loop.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._order = count()
        self._due: list[tuple[float, int, Turns]] = []
        # The loops that wait; entries of `_due` that say otherwise are outdated.
        self._waiting: dict[Turns, float] = {}
        self._threads = SpareThreads()
        self._thread: Thread | None = None

    def add(self, loop: Turns) -> None:
        """Have a loop take turns: the first after a pause, or now if it was woken."""
        with self._changed:
            if self._thread is None:
                self._thread = Thread(target=self._serve, name="rounds", daemon=True)
                self._thread.start()
            self._plan(loop, 0.0 if loop.awake else loop.pause_s())

    def wake(self, loop: Turns) -> None:
        """Have a loop that was woken take its next turn now."""
        with self._changed:
            if loop in self._waiting:
                self._plan(loop, 0.0)

    def hasten(self, loop: Turns, pause_s: float) -> bool:
        """Have a loop take its next turn after a pause, or sooner; False if it is in a turn."""
        with self._changed:
            due = self._waiting.get(loop)
            if due is not None and due > monotonic() + pause_s:
                self._plan(loop, pause_s)
            return due is not None

    def drop(self, loop: Turns) -> None:
        """Forget a loop that is ending; if it is in a turn, that is its last."""
        with self._changed:
            if self._waiting.pop(loop, None) is not None:
                loop.over.set()

    def _plan(self, loop: Turns, pause_s: float) -> None:
        now = monotonic()
        at = ceil((now + pause_s) / TICK_S) * TICK_S if pause_s else now
        self._waiting[loop] = at
        heappush(self._due, (at, next(self._order), loop))
        if self._due[0][2] is loop:
            self._changed.notify()

    def _serve(self) -> None:
        while True:
            loop = self._next()
            if loop.quick:
                self._take(loop)
            elif not self._rests(loop):
                try:
                    self._threads.start(loop.name, partial(self._take, loop))
                except RuntimeError:
                    self._again(loop, NO_THREAD_S)

    def _next(self) -> Turns:
        """Wait until a loop is due, and return it; from then on it does not wait."""
        with self._changed:
            while True:
                while self._due and self._waiting.get(self._due[0][2]) != self._due[0][0]:
                    heappop(self._due)
                left_s = self._due[0][0] - monotonic() if self._due else None
                if left_s is not None and left_s <= 0:
                    loop = heappop(self._due)[2]
                    del self._waiting[loop]
                    return loop
                self._changed.wait(left_s)

    def _rests(self, loop: Turns) -> bool:
        """Let a loop without anything to do wait for its next turn; return whether that was so."""
        with suppress(Exception):
            if not loop.awake and loop.idle():
                self._again(loop, loop.pause_s())
                return True
        return False

    def _take(self, loop: Turns) -> None:
        self._again(loop, loop.turn())

    def _again(self, loop: Turns, pause_s: float) -> None:
        with self._changed:
            if loop.ending:
                loop.over.set()
            else:
                # A loop that was woken during its turn was not waiting then.
                self._plan(loop, 0.0 if loop.awake else pause_s)


ROUNDS = Rounds()


class Bell:
    """Wakes every loop that holds one of some events."""

    def __init__(self, *woken: Event) -> None:
        self._woken = woken

    def ring(self) -> None:
        for event in self._woken:
            event.set()


class Alarm(Event):
    """An event that also wakes a loop which shares its threads."""

    def __init__(self) -> None:
        super().__init__()
        self.wakes: Callable[[], None] | None = None

    def set(self) -> None:
        super().set()
        if self.wakes is not None:
            self.wakes()


class Loop(ABC):
    """Calls `step` every `period_s` seconds, or at once when woken.

    A failed step is logged and tried again; only `end` stops a loop. Setting the event `woken`
    wakes it; a loop that is to share its threads needs an `Alarm`.
    """

    name = "loop"
    # Whether its steps are so rare, or so quick to repeat, that it needs no thread of its own.
    shares = False

    def __init__(self, period_s: float, *, woken: Event | None = None) -> None:
        self.period_s = period_s
        self.over = Event()
        self.quick = False
        self._woken = woken or Alarm()
        self._ending = Event()
        self._thread: Thread | None = None
        self._rounds: Rounds | None = None

    @abstractmethod
    def step(self) -> None:
        """Do one round of work."""

    def idle(self) -> bool:
        """Tell, without blocking, whether a step would find nothing to do."""
        return False

    def start(self) -> None:
        """Start in a thread of its own."""
        self._thread = Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Start, with a step at once, in shared threads if that is enough for it."""
        if self.shares:
            self.wake()
            self.share()
        else:
            self.start()

    def share(self, *, quick: bool = False, rounds: Rounds = ROUNDS) -> None:
        """Start in threads that the loops of all jobs share; `quick` if no step ever blocks.

        The first step follows after a period, or at once if the loop was woken before.
        """
        assert isinstance(self._woken, Alarm)  # noqa: S101 - any other event would not be heard
        self.quick = quick
        self._rounds = rounds
        self._woken.wakes = lambda: rounds.wake(self)
        rounds.add(self)

    def wake(self) -> None:
        """Start the next step now."""
        self._woken.set()

    def wake_in(self, pause_s: float) -> None:
        """Start the next step after a pause, or sooner."""
        if self._rounds is None or not self._rounds.hasten(self, pause_s):
            self.wake()

    def end(self, patience_s: float | None = None) -> None:
        """End the loop after its current step, and wait for that at most `patience_s` seconds."""
        self._ending.set()
        if self._rounds is not None:
            # One that waits for its turn ends without another.
            self._rounds.drop(self)
            self.over.wait(patience_s)
            return
        self._woken.set()
        if self._thread is not None:
            self._thread.join(patience_s)

    @property
    def ending(self) -> bool:
        return self._ending.is_set()

    @property
    def awake(self) -> bool:
        return self._woken.is_set()

    def turn(self) -> float:
        """Do one step unless the loop ends, and return the pause after it, in seconds."""
        # Cleared before the look at `_ending`: `end` sets that first, so it is never missed.
        self._woken.clear()
        if self._ending.is_set():
            return 0.0
        try:
            self.step()
        except CircuitOpen:
            # The reason was logged once for all loops.
            return self.pause_s(WHILE_THEY_REST_S)
        except Exception as error:
            # An error of the system names its file; where it came from would say no more.
            expected = isinstance(error, ForgeError | OSError)
            log.warning("step_failed", loop=self.name, error=str(error), exc_info=not expected)
            return self.pause_s(AFTER_FAILURE_S)
        return self.pause_s()

    def pause_s(self, most_s: float | None = None) -> float:
        """Return how long to wait for the next step."""
        period_s = self.period_s if most_s is None else min(self.period_s, most_s)
        return period_s * uniform(0.9, 1.1)  # noqa: S311 - no secret

    def _run(self) -> None:
        while True:
            pause_s = self.turn()
            if self._ending.is_set():
                return
            self._woken.wait(pause_s)
