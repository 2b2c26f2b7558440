"""What an agent that was killed left on this machine: its next boot goes on with it, or clears it.

A job goes on if its container is still there, running or ended, and its lease still holds. What the
container alone knows is how the job ended; all else is in the job's folder. Everything here may be
cut off by another kill at any place, and the boot after that does it again.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog
from forge_schema.model.lease import Fence
from forge_schema.model.states import Standing, WorkerStatus

from forge_worker.job_runs import job_state, leftovers
from forge_worker.job_runs.attempt import Attempt
from forge_worker.job_runs.clock import seconds, this_boot
from forge_worker.job_runs.folders import Folders
from forge_worker.machine.slots import Slot
from forge_worker.queue.gateway import Gateway
from forge_worker.runners.runner import Exit, Handle, Leftover, Runner

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


class Past:
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
    left = leftovers.survivors(jobs.parent, runners)
    folders = [Folders(root) for root in sorted(jobs.iterdir())]
    ended = {one.root for one in folders if one.fence() in spooled}
    open_ones = [] if foreign else [one for one in folders if one.root not in ended]
    candidates = [
        found for one in open_ones if (found := _candidate(one, runners, left)) is not None
    ]
    adopted = [one for held in _held(candidates, gateway) if (one := _adopted(held)) is not None]
    kept = {one.attempt.folders.root for one in adopted}
    going_on = {one.record.container for one in candidates if _root(one) in kept and one.leftover}
    leftovers.reap(found for name, found in left.items() if name not in going_on)
    others = [one for one in folders if one.root not in kept]
    leftovers.clear(others, runners, None if foreign else gateway, spooled)
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
    lasted_s = seconds() - attempt.places["adopted_ms"] / 1000
    return attempt.places["adoptions"] if lasted_s < SOON_S else 0


def _in_vain(attempt: Attempt) -> bool:
    """Tell whether an attempt is given back, since it may be what its agents died of."""
    if _hasty(attempt) < MOST_HASTY:
        return False
    log.warning("given back: no agent that went on with it lasted", job=attempt.fence.job_id)
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
        attempt.places.keep(adoptions=_hasty(attempt) + 1, adopted_ms=int(seconds() * 1000))
    handle = _handle(candidate, attempt)
    if handle is None:
        return None
    log.info("adopted", job=attempt.fence.job_id, attempt=attempt.grant.attempt)
    return Adopted(attempt, slot, candidate.runner, handle)


def _handle(candidate: Candidate, attempt: Attempt) -> Handle | None:
    if candidate.leftover is not None:
        grace_s = float(attempt.grant.spec["grace_s"])
        return candidate.runner.adopt(candidate.leftover, attempt.folders.log, grace_s)
    exited = job_state.kept_exit(attempt.folders.root)
    return None if exited is None else Past(exited)
