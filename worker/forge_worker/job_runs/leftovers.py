"""Leftovers of an agent that was killed: its next boot continues these jobs or clears them.

A job continues if its container or shim still exists, and its lease still holds. Only the
container knows how the job ended, and a shim notes it; everything else is in the job's folder.
Another kill may interrupt this code anywhere, and the boot after that repeats it.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import End, Fence
from forge_schema.model.states import Reason, Standing, WorkerStatus

from forge_worker import worker_folder
from forge_worker.attempt import LiveAttempt
from forge_worker.attempt_folders import Folders
from forge_worker.clock import seconds, this_boot
from forge_worker.job_runs import job_state
from forge_worker.job_runs.job_environment import PREEMPT_FILE
from forge_worker.machine.slots import MachineSlot
from forge_worker.prepare.secrets import SecretProvision
from forge_worker.queue.gateway import Gateway
from forge_worker.runners.docker.runner import DockerRunner
from forge_worker.runners.process.runner import kill_remains
from forge_worker.runners.runner import Exit, Handle, Leftover, Runner

# An agent that dies this soon after it continued a job may have died because of the job.
SOON_S = 300.0
MOST_HASTY = 3

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Adopted:
    """An attempt that continues, with its slot and its container; one that `ended` has neither."""

    attempt: LiveAttempt
    slot: MachineSlot
    runner: Runner
    handle: Handle
    ended: bool


@dataclass(frozen=True, slots=True)
class LeftoverAttempt:
    """An attempt that could continue; without a leftover it has ended, and its end is known."""

    record: job_state.AttemptHere
    runner: Runner
    leftover: Leftover | None


class EndedHandle:
    """The handle of a job that has ended and left nothing but its end."""

    def __init__(self, exited: Exit) -> None:
        self._exited = exited

    remembers = False

    def wait(self, timeout: float, wake: int | None = None) -> Exit | None:  # noqa: ARG002 - the job has ended
        return self._exited

    def signal(self, signum: int, notice_s: float = 0.0) -> None: ...
    def catches(self, signum: int) -> None: ...

    def stop(self) -> None: ...
    def used(self) -> None: ...
    def remove(self) -> None: ...


def take_up(
    jobs: Path,
    runners: Sequence[Runner],
    gateway: Gateway,
    *,
    spooled: Collection[Fence] = (),
    foreign: bool = False,
    secrets: SecretProvision | None = None,
) -> list[Adopted]:
    """Return the attempts that continue; kill the rest, return their leases, delete their folders.

    An attempt whose end waits in the spool has ended: it is neither continued nor given back. Jobs
    of a `foreign` queue never continue, and this queue is told nothing about them. A job with
    secrets continues if `secrets` still has them, to cover them in its output.

    Raises:
        EngineUnreachable: the engine cannot list its containers.
        ForgeError: the queue cannot say which leases hold.
    """
    left = survivors(jobs.parent, runners)
    folders = [Folders(root) for root in sorted(jobs.iterdir())]
    ended = {folder.root for folder in folders if folder.fence() in spooled}
    open_ones = [] if foreign else [folder for folder in folders if folder.root not in ended]
    candidates = [
        each
        for folder in open_ones
        if (each := _candidate(folder, runners, left, secrets)) is not None
    ]
    adopted = [
        adopted_job
        for held in _held(candidates, gateway)
        if (adopted_job := _adopted(held)) is not None
    ]
    kept = {job.attempt.folders.root for job in adopted}
    going_on = {
        candidate.record.container
        for candidate in candidates
        if _root(candidate) in kept and candidate.leftover
    }
    reap(each for name, each in left.items() if name not in going_on)
    others = [folder for folder in folders if folder.root not in kept]
    clear(others, runners, None if foreign else gateway, spooled)
    return adopted


def _root(candidate: LeftoverAttempt) -> Path:
    return candidate.record.attempt.folders.root


def _candidate(
    folders: Folders,
    runners: Sequence[Runner],
    left: dict[str, tuple[Runner, Leftover]],
    secrets: SecretProvision | None,
) -> LeftoverAttempt | None:
    record = job_state.read(folders)
    # A restart of the machine ends its containers, with exit codes that say nothing about the jobs.
    if record is None or record.boot != this_boot() or not _covered(record.attempt, secrets):
        return None
    if _in_vain(record.attempt):
        return None
    if job_state.kept_exit(folders.root) is not None:
        runner = next((each for each in runners if each.kind == record.kind), None)
        return None if runner is None else LeftoverAttempt(record, runner, None)
    if record.container in left:
        return LeftoverAttempt(record, *left[record.container])
    return None


def _covered(attempt: LiveAttempt, secrets: SecretProvision | None) -> bool:
    """Tell whether a job's secrets, if it has any, can still be covered in its output."""
    if not attempt.grant.spec.get("secrets"):
        return True
    if secrets is not None and secrets.recall(attempt):
        return True
    log.warning("secrets_changed", job=attempt.fence.job_id, note="the job is given back")
    return False


def _hasty(attempt: LiveAttempt) -> int:
    """Return how many agents in a row continued an attempt and died soon after."""
    lasted_s = seconds() - attempt.cursors["adopted_ms"] / 1000
    return attempt.cursors["adoptions"] if lasted_s < SOON_S else 0


def _in_vain(attempt: LiveAttempt) -> bool:
    """Tell whether to give an attempt back because its agents may have died of it."""
    if _hasty(attempt) < MOST_HASTY:
        return False
    log.warning("job_given_back_crashes", job=attempt.fence.job_id)
    return True


def _held(candidates: list[LeftoverAttempt], gateway: Gateway) -> list[LeftoverAttempt]:
    """Return the candidates whose leases hold; the request also renews these leases."""
    if not candidates:
        return []
    attempts = [candidate.record.attempt for candidate in candidates]
    sent_s = seconds()
    renewal = gateway.renew([attempt.fence for attempt in attempts], WorkerStatus.BUSY)
    for attempt in attempts:
        attempt.renewed_s = sent_s
        attempt.heed(renewal.standings.get(attempt.fence, Standing.LOST))
    return [candidate for candidate in candidates if not candidate.record.attempt.lost]


def _adopted(candidate: LeftoverAttempt) -> Adopted | None:
    attempt, slot = candidate.record.attempt, candidate.record.slot
    # Before anything that could kill this agent.
    with suppress(OSError):
        attempt.cursors.keep(adoptions=_hasty(attempt) + 1, adopted_ms=int(seconds() * 1000))
    handle = _handle(candidate, attempt)
    if handle is None:
        return None
    attempt.adopted = True
    log.info("job_adopted", job=attempt.fence.job_id, attempt=attempt.grant.attempt)
    ended = isinstance(handle, EndedHandle)
    return Adopted(attempt, slot, candidate.runner, handle, ended=ended)


def _handle(candidate: LeftoverAttempt, attempt: LiveAttempt) -> Handle | None:
    if candidate.leftover is not None:
        grace_s = float(attempt.grant.spec["grace_s"])
        adopted = candidate.runner.adopt(candidate.leftover, attempt.folders.log, grace_s)
        if adopted is not None:
            return adopted
    # A process may have ended since the look at its folder.
    exited = job_state.kept_exit(attempt.folders.root)
    return None if exited is None else EndedHandle(exited)


def survivors(folder: Path, runners: Sequence[Runner]) -> dict[str, tuple[Runner, Leftover]]:
    """Return the leftovers of a folder's jobs by name; the caller holds the folder's lock.

    Raises:
        EngineUnreachable: the engine cannot list its containers.
    """
    own = str(worker_folder.known_id(folder) or "none")
    return {left.name: (runner, left) for runner in runners for left in runner.leftovers(own)}


def jobs_in(folder: Path) -> list[Path]:
    """Return the job folders inside a worker's folder."""
    jobs = folder / "jobs"
    return sorted(jobs.iterdir()) if jobs.is_dir() else []


def may_run(folders: Folders, runners: Sequence[Runner]) -> bool:
    """Tell whether a job may be running in a container of an engine that was not queried."""
    kept = job_state.runs_in(folders)
    return kept is not None and kept[0] == DockerRunner.kind not in {
        runner.kind for runner in runners
    }


def reap(strays: Iterable[tuple[Runner, Leftover]]) -> None:
    """Kill the leftovers that still run."""
    for runner, leftover in strays:
        log.warning("leftovers_reaped", job=leftover.name, kind=runner.kind)
        runner.reap(leftover)


def clear(
    folders: Iterable[Folders],
    runners: Sequence[Runner],
    gateway: Gateway | None,
    spooled: Collection[Fence] = (),
) -> None:
    """Give leases back and remove the folders, once nothing in them runs any more.

    Jobs whose ends wait in the spool are not given back. Without a gateway, leases just expire.
    """
    for folder in folders:
        if may_run(folder, runners):
            # Left for a start at which the engine answers.
            log.warning("container_unchecked", folder=str(folder.root))
            continue
        fence = folder.fence()
        # A container has another path there.
        kill_remains(PREEMPT_FILE, str(folder.preempt.absolute()))
        if gateway is not None and fence is not None and fence not in spooled:
            _give_back(fence, gateway)
        folder.remove()


def _give_back(fence: Fence, gateway: Gateway) -> None:
    try:
        detail = "the worker was restarted, and the job could not be taken over"
        gateway.finish([End(fence, Reason.WORKER_LOST, detail=detail)])
    except ForgeError as error:
        # The lease expires by itself; this costs only time.
        log.warning("lease_not_returned", job=fence.job_id, error=error.message)
