"""The claim loop: free room on the machine becomes running jobs.

A job that succeeded also claims: its end travels with the claim for the next job, which is started
at once, in the thread of the job that ended. That saves a round trip for each job. See `outbox`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import End, Ended, Grant
from forge_schema.model.states import Reason
from forge_schema.model.worker import Capacity

from forge_worker.clock import seconds
from forge_worker.loop import Loop
from forge_worker.machine.gpu_pool import Choice
from forge_worker.machine.slots import Slot, Slots
from forge_worker.queue.gateway import Gateway

BATCH = 8

log = structlog.get_logger(__name__)


class ClaimLoop(Loop):
    """Claims what fits, and starts it; from its own thread, and from those of jobs that end."""

    name = "claim"

    def __init__(
        self,
        gateway: Gateway,
        slots: Slots,
        start_job: Callable[[Grant, Slot], None],
        *,
        period_s: float,
        ephemeral: bool,
        allowed: Callable[[], bool] = lambda: True,
        room: Callable[[], int | None] = lambda: None,
    ) -> None:
        super().__init__(period_s)
        self._gateway = gateway
        self._slots = slots
        self._start_job = start_job
        self.ephemeral = ephemeral
        self._allowed = allowed
        # How many jobs the machine is fit for now; None: any number.
        self._fit_for = room
        # Room is counted, claimed into and lent as one act.
        self._lock = Lock()
        self.closed = False
        # When the last claim was sent, from which on its leases run.
        self.sent_s = seconds()

    def shut(self) -> None:
        """Claim no more; a claim may still be on its way."""
        self.closed = True

    def close(self) -> None:
        """Claim no more; a claim that is on its way is waited for."""
        self.shut()
        with self._lock:
            pass

    def took_one(self) -> None:
        """Note that a job runs here: an ephemeral worker takes no other."""
        self.closed = self.closed or self.ephemeral

    def open(self) -> None:
        """Claim again."""
        self.closed = False
        self.wake()

    def step(self) -> None:
        # One kind of free GPU after another, until nothing more comes.
        while not self.closed and any(map(self._claim, self._slots.choices())):
            pass

    def _claim(self, choice: Choice | None) -> bool:
        with self._lock, self._slots.offer(choice) as (free, room):
            count = min(room, self._wanted())
            if count <= 0:
                return False
            self.sent_s = seconds()
            _, grants = self._gateway.finish_and_claim([], free, count)
            self._start(grants)
        return bool(grants)

    def finish_and_claim(self, end: End) -> Ended:
        """Report a success, and claim in its place in the same round trip."""
        token = end.fence.token
        choice = self._slots.choices(without=token)[0]
        with self._lock, self._slots.offer(choice, without=token) as (free, room):
            count = max(0, min(room, self._wanted()))
            self.sent_s = seconds()
            (ended,), grants = self._gateway.finish_and_claim([end], free, count)
            self._slots.take_back(token)
            self._start(grants)
        return ended

    def _wanted(self) -> int:
        if self.closed or not self._allowed():
            return 0
        fit_for = self._fit_for()
        most = 1 if self.ephemeral else BATCH
        return most if fit_for is None else min(most, fit_for)

    def _start(self, grants: Sequence[Grant]) -> None:
        """Start the jobs, or give them back: a lease must not be kept up by nobody."""
        for grant in grants:
            self.took_one()
            fence = grant.fence
            try:
                self._start_job(grant, self._slots.lend(fence.token, needs(grant)))
            except Exception as error:
                log.exception("job_not_started", job=fence.job_id)
                self._slots.take_back(fence.token)
                with suppress(ForgeError):
                    self._gateway.finish([End(fence, Reason.START_FAILED, detail=str(error))])


def needs(grant: Grant) -> Capacity:
    """Return what a granted job needs."""
    wanted = grant.spec["resources"]
    sizes = (wanted["cpus"], wanted["memory_mb"], wanted["disk_mb"], wanted["gpus"])
    return Capacity(*sizes, wanted.get("gpu_model", "*"), wanted.get("vram_mb", 0))
