"""The jobs on this machine: each has a thread from its grant to the queue's answer, and is reaped.

ClaimLoop ─► Jobs.start ─► thread: job_run.run ─► Outbox.deliver ─► Jobs.start of the next job
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from threading import Event, Lock

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import End
from forge_schema.model.states import Reason

from forge_worker.agent.claim_loop import Claims, Granted
from forge_worker.agent.leaving import Leaving, unhoused_end
from forge_worker.agent.outbox import Outbox
from forge_worker.attempt import LiveAttempt, LiveAttempts
from forge_worker.attempt_folders import Folders
from forge_worker.job_runs import job_run
from forge_worker.job_runs.job_environment import container_name
from forge_worker.job_runs.leftovers import Adopted
from forge_worker.job_runs.services import JobServices
from forge_worker.loop import Loop, SpareThreads
from forge_worker.machine.slots import MachineSlot, Slots
from forge_worker.machine.watched import WatchedMachine
from forge_worker.runners.choice import Runners
from forge_worker.runners.docker.runner import DockerRunner
from forge_worker.runners.runner import EngineUnreachable
from forge_worker.worker_folder import HeldFolder

PERIOD_S = 30.0
# The period while a job's slot waits for its container to be removed.
SOON_S = 2.0

log = structlog.get_logger(__name__)


class Reaper(Loop):
    """Keeps the slot and the folders of an ended job until its container is gone.

    `freed` is set when a job that is still to be stored leaves room for others.
    """

    name = "reap"
    shares = True

    def __init__(
        self,
        docker: DockerRunner | None,
        slots: Slots,
        *,
        freed: Event | None = None,
        woken: Event | None = None,
    ) -> None:
        super().__init__(PERIOD_S, woken=woken)
        self._docker = docker
        self._slots = slots
        self._freed = freed or Event()
        self._kept: dict[int, LiveAttempt] = {}
        self._lock = Lock()

    def ended(self, attempt: LiveAttempt) -> None:
        """Free all but the disk of a job that has ended, unless its container may still run."""
        if self.may_live(attempt):
            return
        self._slots.keep_disk(attempt.fence.token)
        # Otherwise its end, which claims too, follows at once.
        if attempt.folders.has_output():
            self._freed.set()

    def let_go(self, attempt: LiveAttempt) -> None:
        """Free the slot and the folders of an ended job, now or once its container is gone."""
        attempt.clear_away()
        if not self.may_live(attempt):
            self._free(attempt)
            return
        log.warning("slot_kept", note="its container may still run", job=attempt.fence.job_id)
        with self._lock:
            self._kept[attempt.fence.token] = attempt
            self.period_s = SOON_S
        self.wake()

    @property
    def keeps(self) -> bool:
        """Whether any slot may still be in use by an ended job."""
        return bool(self._kept)

    def step(self) -> None:
        """Remove unused containers, and free the slots and folders that waited for them."""
        try:
            if self._docker is not None:
                self._docker.reap_strays()
        except EngineUnreachable as error:
            log.debug("container_not_reaped", error=error.message)
        for attempt in list(self._kept.values()):
            if not self.may_live(attempt):
                self._free(attempt)
        with self._lock:
            self.period_s = SOON_S if self._kept else PERIOD_S

    def may_live(self, attempt: LiveAttempt) -> bool:
        """Tell whether a job's container may still run."""
        return self._docker is not None and self._docker.containers.may_live(
            container_name(attempt)
        )

    def _free(self, attempt: LiveAttempt) -> None:
        # Folders first: their disk space must be free before the slot is used again.
        attempt.folders.remove()
        self._slots.take_back(attempt.fence.token)
        with self._lock:
            self._kept.pop(attempt.fence.token, None)


class JobThreads:
    """Starts jobs in threads, and cleans up after each of them."""

    def __init__(
        self,
        folder: HeldFolder,
        runners: Runners,
        services: JobServices,
        machine: WatchedMachine,
        *,
        running: LiveAttempts,
        claims: Claims,
        outbox: Outbox,
        reaper: Reaper,
        leaving: Leaving,
    ) -> None:
        self._folder = folder
        self._runners = runners
        self._services = services
        self._running = running
        self._slots, self._faults = machine.slots, machine.faults
        self._claims = claims
        self._outbox = outbox
        self._reaper = reaper
        self._leaving = leaving
        self._threads = SpareThreads()

    def start(self, granted: Sequence[Granted]) -> None:
        """Start granted jobs, or give them back."""
        for granted_job in granted:
            fence = granted_job.grant.fence
            try:
                name = f"{fence.job_id}-{granted_job.grant.attempt}-{fence.token}"
                folders = Folders(self._folder.path / name, new=True)
                attempt = LiveAttempt(granted_job.grant, folders, renewed_s=granted_job.sent_s)
                self._begin(
                    attempt, partial(self._run_attempt, attempt, granted_job.slot), Reason.DRAINED
                )
            except Exception as error:  # noqa: BLE001 - it is logged, and the job is given back
                self._claims.give_back(fence, error)

    def adopt(self, adopted: Iterable[Adopted]) -> None:
        """Continue the attempts that an earlier agent left running."""
        for job in adopted:
            self._slots.lend_again(job.attempt.fence.token, job.slot, ended=job.ended)
            self._claims.took_one()
            given = (job.attempt, job.slot, job.runner, self.known(), job.handle)
            try:
                self._begin(job.attempt, partial(job_run.run, *given), Reason.PREEMPTED)
            except RuntimeError as error:
                self._claims.give_back(job.attempt.fence, error)

    def _begin(self, attempt: LiveAttempt, run: Callable[[], End | None], reason: Reason) -> None:
        """Start a job in a thread; while the worker leaves, the job is given back with the reason.

        Raises:
            RuntimeError: the machine cannot start another thread.
        """
        self._running.add(attempt)
        self._leaving.turn_back(attempt, reason)
        self._faults.stop_jobs()
        try:
            self._threads.start(f"job {attempt.fence.job_id}", partial(self._run_job, attempt, run))
        except RuntimeError:
            # The lease of an attempt without a thread must not be renewed.
            self._forget(attempt)
            raise
        log.info("job_started", job=attempt.fence.job_id, attempt=attempt.grant.attempt)

    def _run_job(self, attempt: LiveAttempt, run: Callable[[], End | None]) -> None:
        try:
            end = run()
            if end is not None and self._folder.gone():
                # Whatever failed, or seems whole, did so without its files.
                end = unhoused_end(attempt, end.usage)
            if attempt.decide_end() and end is not None:
                frees = not self._reaper.may_live(attempt)
                granted = self._outbox.deliver(attempt, end, frees=frees)
                if attempt.folders.new:
                    # There is nothing to remove, which the next job would have to wait for.
                    self._threads.reuse()
                self.start(granted)
        finally:
            self._forget(attempt)
            self._leaving.if_idle()
            self._claims.woken.set()

    def _run_attempt(self, attempt: LiveAttempt, slot: MachineSlot) -> End | None:
        try:
            runner = self._runners.of(attempt.grant.spec)
        except ForgeError as error:
            return End(attempt.fence, Reason.START_FAILED, detail=error.message, lasting=True)
        return job_run.run(attempt, slot, runner, self.known())

    def known(self) -> JobServices:
        """Return the services, with the name and queue of the latest registration."""
        identity, host = self._claims.identity, self._services.host
        named = {"worker": identity.name, "queue_id": str(identity.queue_id or "")}
        if named != {"worker": host.worker, "queue_id": host.queue_id}:
            self._services = replace(self._services, host=replace(host, **named))
        return self._services

    def _forget(self, attempt: LiveAttempt) -> None:
        self._reaper.let_go(attempt)
        self._services.sampler.forget(attempt)
        self._running.remove(attempt.fence.token)
