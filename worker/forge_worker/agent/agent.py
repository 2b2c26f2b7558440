"""The agent: one per machine; it registers, claims, runs, renews, and leaves in good order."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Event, Thread
from typing import Any
from uuid import UUID, uuid4

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import End, Grant
from forge_schema.model.states import Command, Reason, WorkerKind
from forge_schema.queue.registry import NameInUse

from forge_worker import worker_folder
from forge_worker.agent.claim_loop import ClaimLoop
from forge_worker.agent.lease_renewal import LeaseRenewal
from forge_worker.agent.lease_watchdog import LeaseWatchdog
from forge_worker.agent.outbox import Outbox
from forge_worker.agent.queue_wait import NotWaited, end_leftovers, until_answered
from forge_worker.agent.reaper import Reaper
from forge_worker.agent.registration import capacity, machine
from forge_worker.agent.running import Running
from forge_worker.agent.shutdown import Shutdown
from forge_worker.agent.spool import FILE, Spool
from forge_worker.agent.state_file import StateKeeper, snapshot
from forge_worker.attempt.attempt import Attempt, Stop
from forge_worker.attempt.folders import Folders
from forge_worker.attempt.window import opening
from forge_worker.clock import seconds
from forge_worker.devices import Inventory
from forge_worker.job_io.usage import Sampler
from forge_worker.job_runs.job_environment import Host
from forge_worker.job_runs.job_run import JobRun, JobServices
from forge_worker.job_runs.leftovers import Adopted, take_up
from forge_worker.loop import Loop
from forge_worker.machine.admission import Admission, Observer, limits_of
from forge_worker.machine.gpu_health import Faults, FaultWatch, Quarantine
from forge_worker.machine.gpu_locks import GpuLocks
from forge_worker.machine.gpu_meter import GpuMeter
from forge_worker.machine.gpu_pool import GpuPool
from forge_worker.machine.health import Health
from forge_worker.machine.slots import Slot, Slots
from forge_worker.prepare.images import Images
from forge_worker.prepare.order import provisions_in_order
from forge_worker.queue.gateway import Gateway
from forge_worker.queue.objects import Objects
from forge_worker.runners.choice import Runners
from forge_worker.settings.settings import WorkerSettings
from forge_worker.spot.notice import Kind, Notice
from forge_worker.spot.watch import SpotWatch, clouds_of

LEAVE_S = 5.0
# As long at least, also when time is up.
GOODBYE_S = 0.5
LOOK_S = 0.5
# Of a lease's time: after all of it, one that is gone holds its name no more.
NAME_PATIENCE = 1.5
# A worker that drains waits so long for a queue that is away.
LAST_S = 3600.0
# By whom a notice is that comes from no cloud.
OWN = "the worker"
NO_IMAGE = (
    "only jobs that name an image run here: submit with --image, or start this worker with"
    " --default-image (FORGE_DEFAULT_IMAGE)"
)
UNSAFE = "the cloud recommends to leave this machine"

log = structlog.get_logger(__name__)


class Agent:
    """Start with `run`, which returns when the worker has drained; `drain` and `stop` end it."""

    def __init__(
        self,
        settings: WorkerSettings,
        gateway: Gateway,
        objects: Callable[[Attempt], Objects],
        runners: Runners,
    ) -> None:
        self._settings = settings
        self._gateway = gateway
        self._runners = runners
        self._boot_id = uuid4()
        self.worker_id = 0
        self.name = ""
        self._replaced: NameInUse | None = None
        self._jobs = settings.worker_dir / "jobs"
        self._running = Running()
        self._drained = Event()
        self._queue_id: UUID | None = None
        self._unsafe = False
        self._resting = False
        self._leaving = False
        self._devices = Inventory(settings.gpus)
        self._gpus = self._devices.gpus
        pool = GpuPool(self._gpus, self._devices.use, GpuLocks(settings.lock_dir))
        self._slots = Slots(capacity(settings), pool, max_jobs=settings.max_jobs)
        self._reaper = Reaper(runners.docker, self._slots)
        self._health = Health(runners.docker, changed=self._health_changed)
        meter = GpuMeter()
        self._sampler = Sampler(
            gateway,
            meter,
            sample_s=settings.sample_s,
            money_per_second=(settings.price_per_hour or 0.0) / 3600,
        )
        self._faults = Faults(Quarantine(settings.worker_dir), self._slots, self._running.attempts)
        self._fault_watch = FaultWatch(
            [gpu.uuid for gpu in self._gpus if gpu.vendor == "nvidia"],
            meter,
            self._fault,
            look_s=settings.sample_s,
        )
        clouds = clouds_of(settings.spot, settings.spot_url)
        self._spot = SpotWatch(clouds, self.heed)
        self._services = self._made_services(objects)
        self.admission = self._made_admission()
        self._state = StateKeeper(settings.worker_dir, self.told)
        self.claim_loop = self._made_claim_loop()
        self._spool = Spool(settings.worker_dir / FILE, settings.spool_slots)
        patience_s = settings.store_patience_s
        self._outbox = Outbox(gateway, self._spool, self.claim_loop, patience_s=patience_s)
        self._shutdown = Shutdown(
            self._running.attempts,
            gateway,
            self._outbox,
            leave=self._drained.set,
            used=self._sampler.used,
        )
        self.lease_renewal = self._made_lease_renewal()
        self._lease_watchdog = self._made_lease_watchdog()

    def _made_services(self, objects: Callable[[Attempt], Objects]) -> JobServices:
        settings, most = self._settings, self._settings.cache_mb << 20
        images = Images(self._runners.policy, objects, settings.worker_dir / "images", most)
        return JobServices(
            host=Host(
                settings.known_name(),
                str(worker_folder.own_id(settings.worker_dir)),
                "",
                self._devices.accelerator,
                settings.default_image,
            ),
            objects=objects,
            gateway=self._gateway,
            bundles=settings.worker_dir / "bundles",
            bundles_bytes=most,
            log_flush_s=settings.log_flush_s,
            term_notice_s=settings.term_notice_s,
            upload_reserve_s=settings.upload_reserve_s,
            store_patience_s=settings.store_patience_s,
            sampler=self._sampler,
            settle_faults=self._fault_watch.settle,
            health=self._health,
            provisions=provisions_in_order(settings, images),
        )

    def _made_admission(self) -> Admission:
        settings = self._settings
        return Admission(
            limits_of(settings),
            Observer(settings.worker_dir),
            period_s=settings.sample_s,
            cooldown_s=settings.cooldown_s,
            gpus=[gpu.uuid for gpu in self._gpus],
            own_gpus=self._gpus_in_use,
            changed=self._condition_changed,
        )

    def _made_claim_loop(self) -> ClaimLoop:
        return ClaimLoop(
            self._gateway,
            self._slots,
            self._start_job,
            period_s=self._settings.poll_s,
            ephemeral=self._settings.ephemeral,
            allowed=lambda: self.admission.open and not self._unsafe,
            room=lambda: self._health.room(self._running.preparing()),
        )

    def _made_lease_renewal(self) -> LeaseRenewal:
        return LeaseRenewal(
            self._gateway,
            self._running.attempts,
            register=self._register,
            replaced=self._give_way,
            command=self._commanded,
            heard=self._outbox.heard,
            spooled=self._outbox.held,
            condition=self._condition,
            outdated=self._faults.outdated,
            period_s=self._settings.heartbeat_s,
        )

    def _made_lease_watchdog(self) -> LeaseWatchdog:
        return LeaseWatchdog(
            self._running.attempts,
            policy=self._settings.lease_policy,
            ttl_s=self._settings.lease_ttl_s,
            continue_s=self._settings.continue_s,
            slept=self.lease_renewal.wake,
        )

    def run(self) -> None:
        """Work until drained.

        Raises:
            NameInUse: another worker has its name, and is alive, or has taken its place.
        """
        self._jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
        limit_s = self._settings.reconnect_limit_s
        try:
            found = until_answered(
                self._meet,
                limit_s=limit_s,
                name_limit_s=NAME_PATIENCE * self._settings.lease_ttl_s,
                leaving=self._drained,
                unanswered=partial(end_leftovers, self._settings),
            )
        except NotWaited:
            return
        self._go_on(found)
        loops: list[Loop] = [
            self.admission,
            self._health,
            self.lease_renewal,
            self._lease_watchdog,
            self._outbox,
            self.claim_loop,
            self._reaper,
            self._state,
            self._sampler,
            self._shutdown,
            *([self._spot] if self._settings.spot != "none" else []),
            *([self._fault_watch] if self._fault_watch.needed else []),
        ]
        for loop in loops:
            loop.start()
        log.info("worker_ready", worker=self.name, runs=self._runners.words)
        if self._runners.wants_images:
            log.warning("image_required", note=NO_IMAGE)
        self._drained.wait()
        self.claim_loop.end(self._shutdown.left_s())
        self._running.join(self._shutdown.left_s)
        self._deliver_last()
        for loop in loops:
            loop.end(self._shutdown.left_s(LEAVE_S))
        self._disconnect()
        self._spot.gone()
        log.info("worker_left", worker=self.name)
        if self._replaced is not None:
            raise self._replaced

    def _meet(self) -> list[Adopted]:
        """Register, tell what an earlier agent could not tell, and take up what it left."""
        self._register()
        # First: whatever is cleared away gives its lease back.
        self._outbox.step()
        folder, queue = self._settings.worker_dir, self._queue_id
        earlier = worker_folder.queue_served(folder)
        foreign = None not in (earlier, queue) and earlier != queue
        gateway, spooled = self._gateway, self._spool.fences()
        found = take_up(self._jobs, self._runners.all, gateway, spooled=spooled, foreign=foreign)
        if queue is not None:
            worker_folder.set_queue_served(folder, queue)
        return found

    def _deliver_last(self) -> None:
        """Wait until the queue has been told all; what it has not, the next start tells it."""
        until_s = seconds() + LAST_S
        while self._outbox.held() and self._shutdown.left_s(max(0.0, until_s - seconds())) != 0:
            Event().wait(LOOK_S)

    def _go_on(self, adopted: list[Adopted]) -> None:
        """Go on with what an earlier agent left."""
        for found in adopted:
            self._slots.lend_again(found.attempt.fence.token, found.slot)
            self.claim_loop.took_one()
            run = JobRun(found.attempt, found.slot, found.runner, self._services)
            self._begin(found.attempt, partial(run.run, found.handle), Reason.PREEMPTED)

    def drain(self) -> None:
        """Claim no more, and leave when the running jobs have ended."""
        self._resting = False
        self._leaving = True
        self.lease_renewal.wake()
        self._close()

    def _close(self) -> None:
        log.info("worker_draining", jobs=self._slots.jobs)
        self.claim_loop.shut()
        # The claim may be on its way, and whoever asked does not wait for it.
        Thread(target=self._closed, name="drain", daemon=True).start()

    def stop(self, why: str = "the worker was stopped") -> None:
        """Claim no more, and give the running jobs back after their last checkpoint."""
        self.heed(Notice(OWN, Kind.INTERRUPTION, self._settings.term_notice_s), why)

    def heed(self, notice: Notice, own_why: str = "") -> None:
        """Do what a notice asks for; of several, the one that leaves the least time counts."""
        left_s = round(notice.left_s, 1)
        log.warning("spot_notice", by=notice.by, kind=notice.kind.value, left_s=left_s)
        if notice.kind is not Kind.INTERRUPTION:
            self._recommended(leave=notice.kind is Kind.REBALANCE)
            return
        why = own_why or f"{notice.by} takes the machine"
        self._shutdown.announce(opening(notice.left_s), why)
        for attempt in self._running.attempts():
            attempt.request_stop(self._departing(Reason.PREEMPTED))
        self.drain()

    def _departing(self, reason: Reason) -> Stop:
        return Stop(reason, self._shutdown.why or UNSAFE, window=self._shutdown.window)

    def _recommended(self, *, leave: bool) -> None:
        """Take no more jobs, and have stored what those that go on have come to; or as before."""
        self._unsafe = leave
        for attempt in self._running.attempts() if leave else ():
            attempt.checkpoint_asked.set()
        self._condition_changed()

    def _closed(self) -> None:
        self.claim_loop.close()
        self._leave_if_idle()

    def _leave_if_idle(self) -> None:
        # A command to drain may be heard while the worker is told to leave, which wins.
        rests = self._resting and not self._leaving
        if self.claim_loop.closed and not rests and not self._running.attempts():
            self._drained.set()

    def _disconnect(self) -> None:
        # To a queue that does not answer, nothing is said: it will find the worker silent.
        if self.lease_renewal.answered:
            leaves = Thread(target=self._say_goodbye, name="disconnect", daemon=True)
            leaves.start()
            leaves.join(max(GOODBYE_S, self._shutdown.left_s(LEAVE_S) or 0.0))

    def _say_goodbye(self) -> None:
        # Whatever it meets, the worker leaves.
        with suppress(Exception):
            self._gateway.disconnect()

    def _gpus_in_use(self) -> set[str]:
        return {uuid for slot in self._slots.lent.values() for uuid in slot.gpu_uuids}

    def _condition(self) -> dict[str, object]:
        condition = {**self.admission.condition(), **self._faults.condition()}
        why = (condition.get("constrained"), self._health.reason, UNSAFE if self._unsafe else "")
        condition["constrained"] = "; ".join(str(one) for one in why if one)
        if self._leaving:
            condition["draining"] = True
        return condition

    def _fault(self, gpu: str, why: str) -> None:
        if self._faults.add(gpu, why):
            self._condition_changed()

    def _health_changed(self) -> None:
        self._reaper.wake()
        self._condition_changed()

    def _condition_changed(self) -> None:
        self.lease_renewal.wake()
        self.claim_loop.wake()

    def spooled(self) -> int:
        """Return how many ends wait for a queue that does not answer."""
        return len(self._spool.ends())

    def told(self) -> dict[str, Any]:
        """Return what it is and does now, as its state file has it."""
        machine = (self._settings, self._gpus, self._runners.words)
        who = {"worker": self.name, "worker_id": self.worker_id, "draining": self.claim_loop.closed}
        return {
            **who,
            **snapshot(*machine, self._running.attempts(), self._slots.lent),
            "condition": self._condition(),
        }

    def _register(self) -> None:
        first = self.worker_id == 0
        described = machine(
            self._settings,
            self._boot_id,
            self._devices,
            self._runners,
            # One that was replaced itself does not come back by it.
            replace=first and self._settings.replace,
        )
        with self._faults.left_out(described) as fit:
            registered = self._gateway.register(fit)
        self.worker_id, self.name = registered.worker_id, registered.name
        self._queue_id = registered.queue_id
        known = {"worker": self.name, "queue_id": str(self._queue_id or "")}
        self._services = replace(self._services, host=replace(self._services.host, **known))
        if first and self._settings.worker_name not in ("", self.name):
            told = {"name": self.name, "ignored": self._settings.worker_name}
            log.warning("name_ignored", note="over HTTP, an admin names the worker", **told)
        self.claim_loop.ephemeral = registered.kind is WorkerKind.EPHEMERAL
        self._lease_watchdog.ttl_s = registered.lease_ttl_s
        self.lease_renewal.period_s = min(self.lease_renewal.period_s, registered.heartbeat_s)

    def _give_way(self, _: NameInUse) -> None:
        """Give the jobs back and leave: another worker has this one's name or token now."""
        log.error("name_taken", note="its jobs are given back")
        self._replaced = NameInUse(
            f"another worker has taken the place of {self.name}; its jobs were given back",
            hint="start this one with a name of its own (over HTTP: a token)",
        )
        self.stop("another worker has taken this one's place")

    def _commanded(self, command: str | None) -> None:
        if command == Command.STOP:
            if self._shutdown.window is None:
                self.stop()
        elif command == Command.DRAIN:
            if not self.claim_loop.closed:
                # One that is to stay rests until an admin lets it take jobs again.
                self._resting = not self.claim_loop.ephemeral
                self._close()
        elif self._resting and not self._leaving:
            log.info("drain_withdrawn")
            self._resting = False
            self.claim_loop.open()

    def _start_job(self, grant: Grant, slot: Slot) -> None:
        name = f"{grant.fence.job_id}-{grant.attempt}-{grant.fence.token}"
        attempt = Attempt(grant, Folders(self._jobs / name), renewed_s=self.claim_loop.sent_s)
        self._begin(attempt, partial(self._run_attempt, attempt, slot))

    def _begin(
        self, attempt: Attempt, run: Callable[[], End | None], reason: Reason = Reason.DRAINED
    ) -> None:
        fence = attempt.fence
        name = f"job {fence.job_id}"
        # What still hangs when the machine goes must not hold up the process.
        thread = Thread(target=self._run_job, args=(attempt, run), name=name, daemon=True)
        self._running.add(attempt, thread)
        if self._unsafe or self._shutdown.window is not None:
            # Its claim was on its way: it goes back unbegun, and free of charge.
            attempt.request_stop(self._departing(reason))
        self._faults.stop_jobs()
        try:
            thread.start()
        except RuntimeError as error:
            # The machine has no more threads; a lease that nobody works on must not be renewed.
            self._forget(attempt)
            self._gateway.finish([End(fence, Reason.START_FAILED, detail=str(error))])

    def _run_job(self, attempt: Attempt, run: Callable[[], End | None]) -> None:
        log.info("job_started", job=attempt.fence.job_id, attempt=attempt.grant.attempt)
        try:
            end = run()
            if attempt.settle() and end is not None:
                self._outbox.deliver(attempt, end)
        finally:
            self._forget(attempt)
            self._leave_if_idle()
            self.claim_loop.wake()

    def _forget(self, attempt: Attempt) -> None:
        self._reaper.let_go(attempt)
        self._sampler.forget(attempt)
        self._running.remove(attempt.fence.token)

    def _run_attempt(self, attempt: Attempt, slot: Slot) -> End | None:
        try:
            runner = self._runners.of(attempt.grant.spec)
        except ForgeError as error:
            return End(attempt.fence, Reason.START_FAILED, detail=error.message)
        return JobRun(attempt, slot, runner, self._services).run()
