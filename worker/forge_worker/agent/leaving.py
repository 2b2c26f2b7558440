"""Leaving: the worker drains, rests or gives its jobs back, on any kind of request."""

from threading import Event, Thread

import structlog
from forge_schema.model.states import Command, Phase, Reason
from forge_schema.queue.registry import NameInUse

from forge_worker.agent.claim_loop import Claims
from forge_worker.agent.running import Running
from forge_worker.agent.shutdown import Shutdown
from forge_worker.attempt.attempt import Attempt, Stop
from forge_worker.attempt.window import opening
from forge_worker.loop import Bell
from forge_worker.machine.condition import UNSAFE, Condition
from forge_worker.spot.notice import Kind, Notice

# Sender of notices that the worker raises itself.
OWN = "the worker"
HANDED_OVER = "the worker was handed over to a new agent before the job started"
# The first pause before asking again about a claim whose answer was lost, and the longest.
LOOK_S, LONGEST_S = 0.5, 10.0

log = structlog.get_logger(__name__)


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
        running: Running,
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
        self.replaced: NameInUse | None = None

    def drain(self) -> None:
        """Stop claiming, and leave when the running jobs have ended."""
        self._resting = False
        self._condition.leaving = True
        self._close()
        self._changed.ring()

    def stop(self, why: str = "the worker was stopped") -> None:
        """Stop claiming, and give the running jobs back after their last checkpoint."""
        self.heed(Notice(OWN, Kind.INTERRUPTION, self._term_notice_s), why)

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
        if notice.kind is not Kind.INTERRUPTION:
            self._recommended(leave=notice.kind is Kind.REBALANCE)
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
            self._claims.open()
            # `drain` may have run since the look at `leaving`.
            if self._condition.leaving:
                self._close()

    def give_way(self, name: str) -> None:
        """Give the jobs back and leave: another worker has this one's name or token now."""
        log.error("name_taken", note="its jobs are given back")
        self.replaced = NameInUse(
            f"another worker has taken the place of {name}; its jobs were given back",
            hint="start this one with a name of its own (over HTTP: a token)",
        )
        self.stop("another worker has taken this one's place")

    def turn_back(self, attempt: Attempt, reason: Reason) -> None:
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
