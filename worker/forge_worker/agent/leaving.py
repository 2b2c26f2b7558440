"""Leaving: the worker drains, rests or gives its jobs back, on any kind of request."""

from collections.abc import Callable, Collection
from pathlib import Path
from threading import Event, Thread

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import End, Usage
from forge_schema.model.states import Command, Phase, Reason
from forge_schema.queue.registry import NameInUse

from forge_worker.agent.claim_loop import Claims
from forge_worker.agent.outbox import Outbox
from forge_worker.attempt import LiveAttempt, LiveAttempts, Stop
from forge_worker.clock import Window, earlier, opening, seconds
from forge_worker.loop import Bell, Loop
from forge_worker.machine.watched import UNSAFE, Condition
from forge_worker.queue.gateway import Gateway
from forge_worker.spot import Notice, NoticeKind
from forge_worker.worker_folder import FolderGone

PERIOD_S = 0.25
# If the queue takes longer to answer, other jobs are given back meanwhile.
TELL_S = 1.0

# Sender of notices that the worker raises itself.
OWN = "the worker"
HANDED_OVER = "the worker was handed over to a new agent before the job started"
UNHOUSED = "the folder of the worker's jobs was removed"
# How long a worker without a folder may take to give its jobs back.
GONE_S = 10.0
# The first pause before asking again about a claim whose answer was lost, and the longest.
LOOK_S, LONGEST_S = 0.5, 10.0

log = structlog.get_logger(__name__)


class Shutdown(Loop):
    """`window` is the worker's own and `why` its reason to leave; None and "" while it stays.

    Each attempt also has its own window.
    """

    name = "shutdown"
    shares = True

    def __init__(
        self,
        attempts: Callable[[], Collection[LiveAttempt]],
        gateway: Gateway,
        outbox: Outbox,
        *,
        leave: Callable[[], None],
        used: Callable[[LiveAttempt], Usage] = lambda _: Usage(),
        clock: Callable[[], float] = seconds,
    ) -> None:
        super().__init__(PERIOD_S)
        self._attempts = attempts
        self._gateway = gateway
        self._outbox = outbox
        self._leave = leave
        self._used = used
        self._clock = clock
        self.window: Window | None = None
        self.why = ""
        # Whether the worker's folder is gone: no job has anything to store then.
        self.unhoused = False
        self._telling: list[Thread] = []

    def announce(self, window: Window, why: str = "") -> None:
        """Set the window and its reason; of two windows, the one that ends first counts."""
        if earlier(self.window, window) is window:
            self.window, self.why = window, why

    def left_s(self, most_s: float | None = None) -> float | None:
        """Return the seconds until the worker must leave, at most `most_s`; None while it stays."""
        if self.window is None:
            return most_s
        left = max(0.0, self.window.leave_s - self._clock())
        return left if most_s is None else min(left, most_s)

    def step(self) -> None:
        """Give back jobs whose window is ending, and leave when the worker's own window ends."""
        if self.window is not None and self._clock() >= self.window.leave_s:
            self._leave()
        late = [attempt for attempt in self._attempts() if self._is_late(attempt)]
        # An attempt whose end is being delivered right now is left to that delivery.
        late = [attempt for attempt in late if attempt.decide_end()]
        if not late:
            return
        ends = [self._end(attempt) for attempt in late]
        # Store them on disk first: this process may be gone before a slow queue answers.
        kept = [] if self.unhoused else [end for end in ends if self._outbox.keep(end)]
        why = UNHOUSED if self.unhoused else "the worker's time was up"
        for attempt in late:
            log.warning("job_given_back", job=attempt.fence.job_id)
            attempt.lose(f"it was given back, because {why}")
        self._tell_aside(ends, kept)

    def end(self, patience_s: float | None = None) -> None:
        """End the loop, and wait at most `patience_s` seconds for reports under way."""
        super().end(patience_s)
        for thread in self._telling:
            thread.join(self.left_s(patience_s))

    def _tell_aside(self, ends: list[End], kept: list[End]) -> None:
        """Report in a separate thread: the queue may need longer to answer than there is time."""
        thread = Thread(target=self._tell, args=(ends, kept), name="given back", daemon=True)
        thread.start()
        self._telling = [*filter(Thread.is_alive, self._telling), thread]
        thread.join(self.left_s(TELL_S))

    def _tell(self, ends: list[End], kept: list[End]) -> None:
        """Report now; if the queue does not answer, the ends in the spool wait for it."""
        try:
            self._gateway.finish(ends)
        except Exception as error:
            log.warning(
                "end_not_told",
                jobs=len(ends),
                in_the_spool=len(kept),
                error=str(error),
                exc_info=not isinstance(error, ForgeError),
            )
            return
        for end in kept:
            self._outbox.spool.drop(end)

    def _is_late(self, attempt: LiveAttempt) -> bool:
        window = attempt.window
        if attempt.end_decided or attempt.lost:
            return False
        return self.unhoused or (window is not None and self._clock() >= window.give_back_s)

    def _end(self, attempt: LiveAttempt) -> End:
        if self.unhoused:
            return unhoused_end(attempt, self._used(attempt))
        # A job that was already stopping for another reason ends for that reason.
        stop = attempt.stop or Stop(Reason.PREEMPTED)
        why = "; ".join(filter(None, (stop.detail, "time was up before all was stored")))
        return End(attempt.fence, stop.reason, detail=why, usage=self._used(attempt))


def unhoused_end(attempt: LiveAttempt, usage: Usage) -> End:
    """Return the end of an attempt whose files are gone, whatever its program made of that."""
    return End(attempt.fence, Reason.DRAINED, detail=UNHOUSED, usage=usage)


class Leaving:
    """Ends a worker's work. Thread-safe.

    Args:
        running: the running attempts.
        claims: closed when the worker must not take more jobs.
        shutdown: has the window in which the worker must leave.
        condition: records that the worker leaves, or that its machine is unsafe.
        changed: set when the condition has changed.
        left: set once no job runs and none is to come.
        term_notice_s: the seconds that a SIGTERM leaves.
    """

    def __init__(
        self,
        running: LiveAttempts,
        claims: Claims,
        shutdown: Shutdown,
        condition: Condition,
        *,
        changed: Bell,
        left: Event,
        term_notice_s: float,
    ) -> None:
        self._running = running
        self._claims = claims
        self._shutdown = shutdown
        self._condition = condition
        self._changed = changed
        self._left = left
        self._term_notice_s = term_notice_s
        self._resting = False
        self._closing: list[Thread] = []
        self.handed_over = False
        # What the worker ends with, if it is not to end as a success.
        self.failed: NameInUse | FolderGone | None = None
        # Why it leaves by itself, or "".
        self.idle = ""

    def retire(self, why: str) -> None:
        """Leave because there is nothing to do, unless there is at this moment."""
        closed = self._claims.closed
        if self._claims.retire():
            log.info("worker_retires", why=why)
            self.idle = why
            self._condition.leaving = True
            self._left.set()
        elif not closed:
            self._claims.open()
            # An order to leave or to drain may have come since the look at `closed`.
            if self._condition.leaving or self._resting:
                self._close()

    def drain(self) -> None:
        """Stop claiming, and leave when the running jobs have ended."""
        self._resting = False
        self._condition.leaving = True
        self._close()
        self._changed.ring()

    def stop(self, why: str = "the worker was stopped") -> None:
        """Stop claiming, and give the running jobs back after their last checkpoint."""
        self.heed(Notice(OWN, NoticeKind.INTERRUPTION, self._term_notice_s), why)

    def hand_over(self) -> None:
        """Leave at once, and leave the running jobs to the next agent of this folder.

        Jobs that have not started go back, at no charge.
        """
        log.info("worker_handed_over", jobs=self._claims.jobs)
        self._shutdown.why, self.handed_over = HANDED_OVER, True
        self._condition.leaving = True
        self._claims.shut()
        for attempt in self._running.attempts():
            if attempt.phase is Phase.PREPARING:
                attempt.request_stop(self._stop(Reason.DRAINED))
        self._left.set()

    def heed(self, notice: Notice, own_why: str = "") -> None:
        """Follow a notice; of several, the one with the least time left counts."""
        left_s = round(notice.left_s, 1)
        log.warning("spot_notice", by=notice.by, kind=notice.kind.value, left_s=left_s)
        if notice.kind is not NoticeKind.INTERRUPTION:
            self._recommended(leave=notice.kind is NoticeKind.REBALANCE)
            return
        why = own_why or f"{notice.by} is taking the machine back"
        self._shutdown.announce(opening(notice.left_s), why)
        for attempt in self._running.attempts():
            attempt.request_stop(self._stop(Reason.PREEMPTED))
        self.drain()

    def unwarned(self, why: str) -> None:
        """Note why no notice of the cloud would be seen, or that one would ("")."""
        self._condition.blind = why
        self._changed.ring()

    def obey(self, command: str | None) -> None:
        """Follow an admin's command, which arrives with the answer to a renewal."""
        if command == Command.STOP:
            if self._shutdown.window is None:
                self.stop()
        elif command == Command.DRAIN:
            if not self._claims.closed:
                # A permanent worker rests until an admin lets it take jobs again.
                self._resting = not self._claims.identity.ephemeral
                self._close()
        elif self._resting and not self._condition.leaving:
            log.info("drain_withdrawn")
            self._resting = False
            self._condition.gate.release()
            self._claims.open()
            # `drain` may have run since the look at `leaving`.
            if self._condition.leaving:
                self._close()

    def give_way(self, name: str) -> None:
        """Give the jobs back and leave: another worker has this one's name or token now."""
        log.error("name_taken", note="its jobs are given back")
        self.failed = NameInUse(
            f"another worker has taken the place of {name}; its jobs were given back",
            hint="start this one with a name of its own (over HTTP: a token)",
        )
        self.stop("another worker has taken this one's place")

    def unhoused(self, folder: Path) -> None:
        """Give the jobs back and leave: the worker's folder was removed. May be repeated."""
        if self._shutdown.unhoused:
            return
        self.failed = FolderGone(
            f"the folder of the worker's jobs, {folder}, was removed or replaced; the jobs were"
            " given back",
            hint="have nothing clean up there, or choose another folder with --worker-dir"
            " (FORGE_WORKER_DIR); then start the worker again",
        )
        self._shutdown.announce(opening(GONE_S), UNHOUSED)
        self._shutdown.unhoused = True
        self._shutdown.wake()
        self.drain()

    def turn_back(self, attempt: LiveAttempt, reason: Reason) -> None:
        """Give back an attempt that begins while the worker leaves or its machine is unsafe.

        Its claim was already under way. It goes back before it starts, at no charge.
        """
        leaves = self.handed_over or self._shutdown.window is not None
        if self._condition.unsafe or leaves:
            attempt.request_stop(self._stop(reason))

    def if_idle(self) -> None:
        """Leave if no job runs and none is to come."""
        # A command to drain may arrive while the worker is leaving; leaving takes precedence.
        rests = self._resting and not self._condition.leaving
        if self._claims.closed and not rests and not self._running.attempts():
            self._left.set()

    def _close(self) -> None:
        log.info("worker_draining", jobs=self._claims.jobs)
        self._claims.shut()
        # A claim may be under way, and the caller does not wait for it.
        closing = Thread(target=self._closed, name="drain", daemon=True)
        closing.start()
        self._closing = [*filter(Thread.is_alive, self._closing), closing]

    def _closed(self) -> None:
        self._claims.close()
        self.if_idle()
        pause_s = LOOK_S
        while self._claims.closed and not self._claims.give_back_unanswered():
            Event().wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_S)

    def join(self, left_s: float | None) -> None:
        """Wait until no claim is under way or unanswered, or time is up."""
        for closing in self._closing:
            closing.join(left_s)

    def _stop(self, reason: Reason) -> Stop:
        return Stop(reason, self._shutdown.why or UNSAFE, window=self._shutdown.window)

    def _recommended(self, *, leave: bool) -> None:
        """Stop claiming and have running jobs store checkpoints, or resume normal operation."""
        self._condition.unsafe = leave
        for attempt in self._running.attempts() if leave else ():
            attempt.checkpoint_asked.set()
        self._changed.ring()
