"""What an agent that was killed left on this machine: its next boot goes on with it, or clears it.

A job goes on if its container is still there, running or ended, and its lease still holds. What the
container alone knows is how the job ended; all else is in the job's folder. Everything here may be
cut off by another kill at any place, and the boot after that does it again.
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
from forge_worker.attempt.attempt import Attempt
from forge_worker.attempt.folders import Folders
from forge_worker.clock import seconds, this_boot
from forge_worker.job_runs import job_state
from forge_worker.machine.slots import Slot
from forge_worker.queue.gateway import Gateway
from forge_worker.runners.docker.runner import DockerRunner
from forge_worker.runners.runner import Exit, Handle, Leftover, Own, Runner

# An agent that is gone so soon after it went on with a job may have died of it.
SOON_S = 300.0
MOST_HASTY = 3

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Adopted:
    """An attempt that goes on, with what it was lent and what runs it."""

    attempt: Attempt
    slot: Slot
    runner: Runner
    handle: Handle


@dataclass(frozen=True, slots=True)
class Candidate:
    """An attempt that could go on; without a leftover it has ended, and its end is known."""

    record: job_state.Record
    runner: Runner
    leftover: Leftover | None


class EndedHandle:
    """The handle of a job that has ended, and of which nothing is left but its end."""

    def __init__(self, exited: Exit) -> None:
        self._exited = exited

    def wait(self, timeout: float) -> Exit | None:  # noqa: ARG002  it has been waited for
        return self._exited

    def signal(self, signum: int) -> None: ...
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
) -> list[Adopted]:
    """Return what goes on, and clear the rest: kill it, give its lease back, remove its folder.

    One whose end waits in the spool has ended: it neither goes on, nor is it given back. Of the
    jobs of a `foreign` queue nothing goes on, and this queue is told nothing of them.

    Raises:
        EngineUnreachable: the engine cannot say what it runs.
        ForgeError: the queue cannot say which leases hold.
    """
    left = survivors(jobs.parent, runners)
    folders = [Folders(root) for root in sorted(jobs.iterdir())]
    ended = {one.root for one in folders if one.fence() in spooled}
    open_ones = [] if foreign else [one for one in folders if one.root not in ended]
    candidates = [
        found for one in open_ones if (found := _candidate(one, runners, left)) is not None
    ]
    adopted = [one for held in _held(candidates, gateway) if (one := _adopted(held)) is not None]
    kept = {one.attempt.folders.root for one in adopted}
    going_on = {one.record.container for one in candidates if _root(one) in kept and one.leftover}
    reap(found for name, found in left.items() if name not in going_on)
    others = [one for one in folders if one.root not in kept]
    clear(others, runners, None if foreign else gateway, spooled)
    return adopted


def _root(candidate: Candidate) -> Path:
    return candidate.record.attempt.folders.root


def _candidate(
    folders: Folders, runners: Sequence[Runner], left: dict[str, tuple[Runner, Leftover]]
) -> Candidate | None:
    found = job_state.read(folders)
    # A machine that restarted has ended its containers, with codes that say nothing of the jobs.
    # What was secret is kept nowhere, and what a job prints of it could no longer be covered.
    if found is None or found.boot != this_boot() or found.attempt.grant.spec.get("secrets"):
        return None
    if not folders.output.is_dir():
        # An agent of an earlier version kept a job's folders elsewhere if it shared its container.
        return None
    if _in_vain(found.attempt):
        return None
    if job_state.kept_exit(folders.root) is not None:
        runner = next((one for one in runners if one.kind == found.kind), None)
        return None if runner is None else Candidate(found, runner, None)
    if found.container in left:
        return Candidate(found, *left[found.container])
    return None


def _hasty(attempt: Attempt) -> int:
    """Return how many agents in a row went on with an attempt and were soon gone."""
    lasted_s = seconds() - attempt.cursors["adopted_ms"] / 1000
    return attempt.cursors["adoptions"] if lasted_s < SOON_S else 0


def _in_vain(attempt: Attempt) -> bool:
    """Tell whether an attempt is given back, since it may be what its agents died of."""
    if _hasty(attempt) < MOST_HASTY:
        return False
    log.warning("job_given_back_crashes", job=attempt.fence.job_id)
    return True


def _held(candidates: list[Candidate], gateway: Gateway) -> list[Candidate]:
    """Return those whose leases hold; whoever asks also renews them."""
    if not candidates:
        return []
    attempts = [candidate.record.attempt for candidate in candidates]
    sent_s = seconds()
    renewal = gateway.renew([attempt.fence for attempt in attempts], WorkerStatus.BUSY)
    for attempt in attempts:
        attempt.renewed_s = sent_s
        attempt.heed(renewal.standings.get(attempt.fence, Standing.LOST))
    return [candidate for candidate in candidates if not candidate.record.attempt.lost]


def _adopted(candidate: Candidate) -> Adopted | None:
    attempt, slot = candidate.record.attempt, candidate.record.slot
    # Before anything that this agent might die of.
    with suppress(OSError):
        attempt.cursors.keep(adoptions=_hasty(attempt) + 1, adopted_ms=int(seconds() * 1000))
    handle = _handle(candidate, attempt)
    if handle is None:
        return None
    log.info("job_adopted", job=attempt.fence.job_id, attempt=attempt.grant.attempt)
    return Adopted(attempt, slot, candidate.runner, handle)


def _handle(candidate: Candidate, attempt: Attempt) -> Handle | None:
    if candidate.leftover is not None:
        grace_s = float(attempt.grant.spec["grace_s"])
        return candidate.runner.adopt(candidate.leftover, attempt.folders.log, grace_s)
    exited = job_state.kept_exit(attempt.folders.root)
    return None if exited is None else EndedHandle(exited)


def survivors(folder: Path, runners: Sequence[Runner]) -> dict[str, tuple[Runner, Leftover]]:
    """Return by name what runs of the jobs of a worker's folder; whoever calls holds its lock.

    Raises:
        EngineUnreachable: the engine cannot say what it runs.
    """
    own, carried = own_of(folder), str(worker_folder.known_id(folder) or "none")
    return {left.name: (one, left) for one in runners for left in one.leftovers(carried, own)}


def own_of(folder: Path) -> Own:
    """Return what tells whether a leftover that carries no id is of a worker's folder.

    It is if a job's record names it: the name holds the lease's random nonce.
    """
    records = (job_state.runs_in(Folders(root)) for root in jobs_in(folder))
    names = {name for kept in records if kept for _, name in [kept]}
    return lambda left: left.name in names


def jobs_in(folder: Path) -> list[Path]:
    """Return the folders of the jobs that lie in a worker's folder."""
    jobs = folder / "jobs"
    return sorted(jobs.iterdir()) if jobs.is_dir() else []


def may_run(folders: Folders, runners: Sequence[Runner]) -> bool:
    """Tell whether a job may run in a container of an engine that was not asked."""
    kept = job_state.runs_in(folders)
    return kept is not None and kept[0] == DockerRunner.kind not in {one.kind for one in runners}


def reap(found: Iterable[tuple[Runner, Leftover]]) -> None:
    """Kill what still runs."""
    for runner, leftover in found:
        log.warning("leftovers_reaped", job=leftover.name, kind=runner.kind)
        runner.reap(leftover)


def clear(
    folders: Iterable[Folders],
    runners: Sequence[Runner],
    gateway: Gateway | None,
    spooled: Collection[Fence] = (),
) -> None:
    """Give leases back and remove the folders, once nothing runs in them any more.

    Whose end waits in the spool ends with that. Without a gateway, leases run out by themselves.
    """
    for one in folders:
        if may_run(one, runners):
            # It is for a start at which the engine answers.
            log.warning("container_unchecked", folder=str(one.root))
            continue
        fence = one.fence()
        if gateway is not None and fence is not None and fence not in spooled:
            _give_back(fence, gateway)
        one.remove()


def _give_back(fence: Fence, gateway: Gateway) -> None:
    try:
        gateway.finish([End(fence, Reason.WORKER_LOST, detail="the agent was restarted")])
    except ForgeError as error:
        # The lease expires by itself; only time is lost.
        log.warning("lease_not_returned", job=fence.job_id, error=error.message)
