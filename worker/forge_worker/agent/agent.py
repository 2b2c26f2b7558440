"""The agent: one per machine; it registers, claims, runs, renews, and leaves in good order."""

from collections.abc import Callable
from functools import partial
from threading import Event, Thread

import structlog
from forge_schema.storage import Objects

from forge_worker import worker_folder
from forge_worker.agent.claim_loop import ClaimLoop, Claims
from forge_worker.agent.idle_exit import IdleExit
from forge_worker.agent.jobs import JobThreads, Reaper
from forge_worker.agent.leases import LeaseRenewal, LeaseWatchdog
from forge_worker.agent.leaving import Leaving, Shutdown
from forge_worker.agent.outbox import FILE, Outbox, Spool
from forge_worker.agent.registration import (
    NotWaited,
    Registration,
    WorkerIdentity,
    end_leftovers,
    until_answered,
)
from forge_worker.agent.state_file import StateKeeper
from forge_worker.attempt import LiveAttempt, LiveAttempts
from forge_worker.circuit_breaker import Refusals
from forge_worker.gang.address import gang_policy
from forge_worker.job_io.usage import Sampler
from forge_worker.job_runs.leftovers import Adopted, take_up
from forge_worker.job_runs.preparation import Prefetch
from forge_worker.job_runs.services import job_services
from forge_worker.loop import Alarm, Bell, Loop
from forge_worker.machine.gpu_health import GpuMeter
from forge_worker.machine.slots import Slots
from forge_worker.machine.watched import WatchedMachine
from forge_worker.prepare.inputs import input_labels
from forge_worker.prepare.inputs.source import offered_folders
from forge_worker.prepare.secrets import SecretProvision, SecretStore
from forge_worker.queue.gateway import Gateway
from forge_worker.runners.choice import Runners
from forge_worker.runners.docker.sandboxes import SandboxPool
from forge_worker.settings.settings import WorkerSettings
from forge_worker.spot.watch import SpotMarket, SpotWatch, clouds_of

LEAVE_S = 5.0
# The minimum time for a goodbye, even when time is up.
GOODBYE_S = 0.5
# In lease lengths: a dead worker no longer holds its name after one of them.
NAME_PATIENCE = 1.5
NO_IMAGE = (
    "only jobs that name an image run here: submit with --image, or start this worker with"
    " --default-image (FORGE_DEFAULT_IMAGE)"
)
# The longest that a signal may go unnoticed.
SIGNALS_S = 1.0
# How long its cloud may take to say whether the machine is a spot one.
LOOKS_S = 0.2

log = structlog.get_logger(__name__)


def sandboxes_wanted(most: int, runners: Runners, claims: Claims, slots: Slots) -> int:
    """Return how many sandboxes are to wait; one is for the next job if all is lent."""
    return 0 if claims.closed or not runners.sandboxed else min(most, max(1, slots.spare))


class Agent:
    """Start with `run`, which returns when the worker has drained; `leaving` ends it.

    The parts are created in order of their dependencies.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        gateway: Gateway,
        objects: Callable[[LiveAttempt], Objects],
        runners: Runners,
        *,
        refusals: Refusals | None = None,
    ) -> None:
        self._settings, self._gateway, self._runners = settings, gateway, runners
        self._refusals = refusals or Refusals()
        self._drained = Event()
        claim, renew, reap = Event(), Event(), Alarm()
        changed = Bell(claim, renew)
        self.running = LiveAttempts()
        attempts = self.running.attempts
        machine = self._machine = WatchedMachine(
            settings,
            runners.docker,
            attempts=attempts,
            preparing=self.running.preparing,
            changed=changed,
            engine_changed=Bell(claim, renew, reap),
        )
        gangs = gang_policy(settings, containers=runners.docker is not None)
        self._secrets = SecretStore(settings.secrets_dir, settings.name())
        folders = offered_folders(settings.offer_folders, settings.worker_dir)
        inputs = input_labels(folders, runners.contained)
        clouds = clouds_of(settings.spot, settings.spot_url)
        market = SpotMarket(settings.spot_machine, Bell(renew))
        self._registration = Registration(
            settings,
            gateway,
            runners,
            machine,
            gangs,
            secrets=self._secrets,
            market=market,
            inputs=inputs,
        )
        identity, condition = self._registration.identity, machine.condition
        self._sampler = _sampler(settings, gateway, machine.meter)
        self._reaper = Reaper(runners.docker, machine.slots, freed=claim, woken=reap)
        claims = Claims(gateway, machine.slots, identity, room=condition.room, woken=claim)
        self._sandboxes = _sandbox_pool(settings, runners, claims, machine.slots)
        self.outbox = _outbox(settings, gateway, claims)
        self._shutdown = Shutdown(
            attempts, gateway, self.outbox, leave=self._drained.set, used=self._sampler.used
        )
        self.leaving = Leaving(
            self.running,
            claims,
            self._shutdown,
            condition,
            changed=changed,
            left=self._drained,
            term_notice_s=settings.term_notice_s,
        )
        services = job_services(
            settings,
            gateway,
            objects,
            runners,
            machine,
            sampler=self._sampler,
            gangs=gangs,
            folders=folders,
            ended=self._reaper.ended,
        )
        self._jobs_folder = worker_folder.HeldFolder(settings.worker_dir / "jobs")
        self._jobs = JobThreads(
            self._jobs_folder,
            runners,
            services,
            machine,
            running=self.running,
            claims=claims,
            outbox=self.outbox,
            reaper=self._reaper,
            leaving=self.leaving,
        )
        self.claim_loop = ClaimLoop(claims, self._jobs.start, period_s=settings.poll_s)
        self.lease_renewal = LeaseRenewal(
            gateway,
            self._registration,
            running=self.running,
            outbox=self.outbox,
            condition=condition,
            leaving=self.leaving,
            woken=renew,
        )
        self._lease_watchdog = _lease_watchdog(settings, attempts, identity, slept=Bell(renew))
        self._prefetch = _prefetch(settings, runners, self._jobs, attempts, claims)
        self._idle_exit = (
            None
            if settings.exit_after_idle is None
            else IdleExit(
                settings.exit_after_idle,
                running=self.running,
                claims=claims,
                outbox=self.outbox,
                condition=condition,
                leaving=self.leaving,
            )
        )
        self._spot = SpotWatch(clouds, self.leaving.heed, self.leaving.unwarned, market)
        self._looks = Thread(target=self._spot.look_around, name="spot", daemon=True)
        self.state = StateKeeper(
            settings,
            machine,
            self._jobs_folder,
            self.leaving,
            runners.words,
            running=self.running,
            claims=claims,
            refusals=self._refusals,
        )

    def run(self) -> None:
        """Work until drained.

        Raises:
            NameInUse: another live worker has its name, or has replaced it.
            FolderGone: its folder was removed.
        """
        self._jobs_folder.hold()
        # A cloud answers at once. Jobs that want no spot machine must not be given to one.
        self._looks.start()
        self._looks.join(LOOKS_S)
        try:
            adopted = until_answered(
                self._meet,
                limit_s=self._settings.reconnect_limit_s,
                name_limit_s=NAME_PATIENCE * self._settings.lease_ttl_s,
                leaving=self._drained,
                unanswered=partial(end_leftovers, self._settings),
            )
        except NotWaited:
            return
        self._refusals.met()
        self._jobs.adopt(adopted)
        loops = self._loops()
        for loop in loops:
            loop.begin()
        name = self._registration.identity.name
        log.info("worker_ready", worker=name, runs=self._runners.words)
        if self._runners.wants_images:
            log.warning("image_required", note=NO_IMAGE)
        # Python runs signal handlers in this thread, and a signal does not always wake a wait.
        while not self._drained.wait(SIGNALS_S):
            pass
        if self.leaving.handed_over:
            self._hand_over()
            return
        self._leave(loops)
        log.info("worker_left", worker=name)
        if self.leaving.failed:
            raise self.leaving.failed

    def _loops(self) -> list[Loop]:
        """Return the loops in the order in which they start and end."""
        fault_watch = self._machine.fault_watch
        return [
            self._machine.admission,
            self._machine.health,
            self.lease_renewal,
            self._lease_watchdog,
            self.outbox,
            self.claim_loop,
            self._reaper,
            *([self._sandboxes] if self._sandboxes else []),
            self.state,
            self._sampler,
            self._shutdown,
            *([self._prefetch] if self._settings.prefetch_s else []),
            *([self._spot] if self._settings.spot != "none" else []),
            *([fault_watch] if fault_watch.needed else []),
            *([self._machine.gate] if self._machine.gate.needed else []),
            *([self._idle_exit] if self._idle_exit else []),
        ]

    def _meet(self) -> list[Adopted]:
        """Register, report the ends an earlier agent could not, and continue the jobs it left."""
        self._registration.register()
        identity = self._registration.identity
        # The last renewal of a killed agent may be as old as a heartbeat.
        alone_s = identity.ttl_s - identity.heartbeat_s
        self._runners.outlive(alone_s, strict=self._settings.lease_policy == "strict")
        # This comes first: clearing leftovers gives their leases back.
        self.outbox.step()
        folder, queue = self._settings.worker_dir, identity.queue_id
        earlier = worker_folder.queue_served(folder)
        adopted = take_up(
            folder / "jobs",
            self._runners.all,
            self._gateway,
            spooled=self.outbox.spool.fences(),
            foreign=None not in (earlier, queue) and earlier != queue,
            secrets=SecretProvision(self._secrets),
        )
        if queue is not None:
            worker_folder.set_queue_served(folder, queue)
        return adopted

    def _hand_over(self) -> None:
        """Renew every lease once more, so that it lasts until the next agent; say no goodbye."""
        self.claim_loop.end(LEAVE_S)
        self.running.join_preparing(LEAVE_S)
        self.lease_renewal.end(LEAVE_S)
        last = Thread(target=self.lease_renewal.renew_now, name="last renewal", daemon=True)
        last.start()
        last.join(LEAVE_S)
        log.info("worker_left", worker=self._registration.identity.name)

    def _leave(self, loops: list[Loop]) -> None:
        """Wait for the jobs, report as much as time allows, and say goodbye to the queue."""
        self.claim_loop.end(self._shutdown.left_s())
        self.running.join(self._shutdown.left_s)
        self.outbox.empty(self._shutdown.left_s)
        self.leaving.join(self._shutdown.left_s(LEAVE_S))
        for loop in loops:
            loop.end(self._shutdown.left_s(LEAVE_S))
        self.lease_renewal.say_goodbye(max(GOODBYE_S, self._shutdown.left_s(LEAVE_S) or 0.0))
        self._spot.gone()


def _sampler(settings: WorkerSettings, gateway: Gateway, meter: GpuMeter) -> Sampler:
    money_per_second = (settings.price_per_hour or 0.0) / 3600
    return Sampler(gateway, meter, sample_s=settings.sample_s, money_per_second=money_per_second)


def _sandbox_pool(
    settings: WorkerSettings, runners: Runners, claims: Claims, slots: Slots
) -> SandboxPool | None:
    if runners.docker is None:
        return None
    own_id = str(worker_folder.own_id(settings.worker_dir))
    wanted = partial(sandboxes_wanted, settings.sandboxes, runners, claims, slots)
    return SandboxPool(runners.docker, own_id, wanted)


def _outbox(settings: WorkerSettings, gateway: Gateway, claims: Claims) -> Outbox:
    spool = Spool(settings.worker_dir / FILE, settings.spool_slots)
    return Outbox(gateway, spool, claims, patience_s=settings.store_patience_s)


def _lease_watchdog(
    settings: WorkerSettings,
    attempts: Callable[[], list[LiveAttempt]],
    identity: WorkerIdentity,
    slept: Bell,
) -> LeaseWatchdog:
    return LeaseWatchdog(
        attempts,
        policy=settings.lease_policy,
        identity=identity,
        continue_s=settings.continue_s,
        slept=slept,
    )


def _prefetch(
    settings: WorkerSettings,
    runners: Runners,
    jobs: JobThreads,
    attempts: Callable[[], list[LiveAttempt]],
    claims: Claims,
) -> Prefetch:
    return Prefetch(
        settings.worker_dir / "ahead",
        runners,
        jobs.known,
        attempts=attempts,
        closed=lambda: claims.closed,
        period_s=settings.prefetch_s,
    )
