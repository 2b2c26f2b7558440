"""The queue: its verbs, each one statement of `sql/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from forge_schema.database.pool import Database, Row
from forge_schema.ending import AT_ONCE, GangRuns, finish_params
from forge_schema.model.errors import ForgeError
from forge_schema.model.job import job_unknown
from forge_schema.model.lease import (
    End,
    Ended,
    Fence,
    Gathering,
    Grant,
    Member,
    Renewal,
    by_job,
    fence_params,
    fences,
    share,
)
from forge_schema.model.states import (
    Asked,
    Budget,
    Phase,
    Reason,
    Standing,
    State,
    WorkerStatus,
    in_state,
    in_words,
)
from forge_schema.model.worker import Capacity
from forge_schema.queue.cancel_retry import JobActs
from forge_schema.queue.claim import claim, claimed_before
from forge_schema.queue.lanes import Lanes

if TYPE_CHECKING:
    from pydantic import JsonValue

    from forge_schema.model.spec import JobSpec
    from forge_schema.queue.submission import Submission

LEASE_TTL = timedelta(seconds=120)
MEMBER = tuple(field.name for field in fields(Member))
NO_LONGER = "the worker may no longer run it"


class NotRetryable(ForgeError):
    """The job is not in a state from which it can be retried."""


class WorkerUnknown(ForgeError):
    """The worker is not registered, or a newer boot of it is."""


class Queue:
    """The lease protocol over SQL; every verb may be called by any number of processes at once.

    Args:
        actor: the acting party, for the audit trail: `user:ann`, `worker:7`, `sweeper`.
        ttl: how long a lease lasts unless it is renewed.
    """

    def __init__(self, database: Database, *, actor: str, ttl: timedelta = LEASE_TTL) -> None:
        self.database = database
        self.actor = actor
        self.ttl = ttl
        self.runs = GangRuns(database)
        self._acts = JobActs(database, owner=None, actor=actor)

    def submit(self, specs: Sequence[JobSpec], *, any_owner: bool = False) -> list[int]:
        """Submit jobs in one statement and return their ids, in order.

        A spec without an idempotency key gets one, so that a lost answer cannot double it.

        Args:
            specs: the jobs.
            any_owner: whether they may start from other owners' checkpoints and run other
                owners' uploads, which then count as uploaded by the jobs' owners too.

        Raises:
            JobUnknown, CheckpointUnknown: a job or checkpoint to start from does not exist; no
                job was submitted.
            NotUploaded: an owner has not uploaded what a job names; no job was submitted.
            IdempotencyConflict: a key belongs to a job with different content; no job was
                submitted, unless the other job was being submitted at the same moment.
        """
        return self._submission.submit(specs, any_owner=any_owner)

    @cached_property
    def _submission(self) -> Submission:
        # Sweepers and workers submit nothing, and begin sooner without the models of a job.
        from forge_schema.queue.submission import Submission  # noqa: PLC0415

        return Submission(self.database, self.actor, {})

    def claim(self, lanes: Lanes, free: Capacity, *, count: int = 1) -> list[Grant]:
        """Claim up to `count` jobs that fit into the free resources, best first."""
        return self.finish_and_claim([], lanes, free, count=count)[1]

    def finish_and_claim(
        self,
        ends: Sequence[End],
        lanes: Lanes,
        free: Capacity,
        *,
        count: int = 1,
        warm: Sequence[int] = (),
        nonce: UUID | None = None,
        repeated: bool = False,
        offered: bool = False,
    ) -> tuple[list[Ended], list[Grant]]:
        """End leases and claim jobs in their place, in one round trip and one transaction.

        A claim whose answer was lost is `repeated` with its nonce: if it was granted jobs, these
        are returned and no others are claimed.

        Args:
            ends: the leases, each with the reason for its attempt's end.
            lanes: the claiming worker's lanes.
            free: the worker's free resources once the leases have ended.
            count: maximum number of jobs to claim; 0 with `repeated` only asks for earlier ones.
            warm: the parts of jobs that the worker has, preferred among jobs of one owner.
            nonce: the claim's name; None makes one up.
            repeated: whether a claim of this name was sent before.
            offered: whether it was answered that there was nothing, so that the worker may be
                leased for a gang since.
        """
        nonce = nonce or uuid4()
        answered = offered and not repeated
        before = self.granted(lanes, nonce, answered=answered) if repeated or offered else []
        if not ends and (before or not count):
            return [], before
        count = 0 if before else count
        plain = all(map(_is_plain, ends))
        if not plain and not count:
            return self.finish(ends), before
        if any(end.reason in AT_ONCE for end in ends):
            lanes.came_back(own=True)
        done, rows, new = claim(
            self.database,
            lanes,
            free,
            count=count,
            ttl=self.ttl,
            nonce=nonce,
            warm=warm,
            successes=sorted(ends, key=by_job) if plain else (),
            # A success costs a third less without the other reasons' budgets, so it goes without.
            others=() if plain else ends,
        )
        if plain and done == len(ends):
            return [_succeeded(end.fence) for end in ends], before or new
        ended = self._moved(ends, rows)
        if not all(end.over for end in ended):
            lanes.came_back()
        return ended, before or new

    def granted(self, lanes: Lanes, nonce: UUID, *, answered: bool) -> list[Grant]:
        """Return what was granted under the name of an earlier claim.

        Args:
            lanes: the claiming worker's lanes.
            nonce: the claim's name.
            answered: whether the claim was answered; then only for gangs.
        """
        grants, unfit = claimed_before(self.database, lanes, nonce, ttl=self.ttl, answered=answered)
        self.finish([End(fence, Reason.DRAINED, detail=NO_LONGER) for fence in unfit])
        return grants

    def with_gangs(self, lanes: Lanes, nonce: UUID, grants: Sequence[Grant]) -> list[Grant]:
        """Return what a claim was granted, and what a gang was meanwhile under the claim's name."""
        known = {grant.token for grant in grants}
        more = self.granted(lanes, nonce, answered=True)
        return [*grants, *(grant for grant in more if grant.token not in known)]

    def finish(self, ends: Sequence[End], *, expired_only: bool = False) -> list[Ended]:
        """End leases and move their jobs on. A repeated call returns the stored outcome.

        Args:
            ends: the leases, each with the reason for its attempt's end.
            expired_only: whether to end only leases that have expired; others are left out of
                the answer.
        """
        if not ends:
            return []
        params = finish_params(ends, expired_only=expired_only)
        rows = self.database.rows("finish", again=True, **params)
        return self._moved(ends, rows, expired_only=expired_only)

    def _moved(
        self, ends: Sequence[End], rows: Sequence[Row], *, expired_only: bool = False
    ) -> list[Ended]:
        """Return what became of each end; those that ended nothing now may have done so before.

        The statements leave members of runs alone, so that what they do for others stays simple.
        """
        moved = {_fence(row): _ended(row) for row in rows}
        gone = [end for end in ends if end.fence not in moved]
        moved |= self.runs.end(gone, expired_only=expired_only)
        if not expired_only:
            moved |= self._stored([end for end in gone if end.fence not in moved])
        return [moved[end.fence] for end in ends if end.fence in moved]

    def release(self, fence: Fence, reason: Reason = Reason.PREEMPTED) -> Ended:
        """Give a job back, as `preempted` or `drained`. It is ready again at once."""
        return self.finish([End(fence, reason)])[0]

    def _stored(self, gone: Sequence[End]) -> dict[Fence, Ended]:
        if not gone:
            return {}
        rows = self.database.rows("ended", again=True, **fences([end.fence for end in gone]))
        stored = {_fence(row): _ended(row) for row in rows}
        return {end.fence: _repeated(end, stored.get(end.fence)) for end in gone}

    def renew(
        self,
        worker_id: int,
        boot_id: UUID,
        leases: Sequence[Fence],
        status: WorkerStatus,
        condition: Mapping[str, object] | None = None,
    ) -> Renewal:
        """Renew a worker's leases and return the status of each.

        `condition` describes its machine; None keeps the previous one. What it measures is stored
        every two minutes, anything else at once.

        Raises:
            WorkerUnknown: the worker must register again.
        """
        ordered = sorted(leases, key=lambda fence: fence.job_id)
        rows = self.database.rows(
            "renew",
            again=True,
            worker_id=worker_id,
            boot_id=boot_id,
            status=status.value,
            ttl=self.ttl,
            condition=None if condition is None else Jsonb(condition),
            **fences(ordered),
        )
        if not rows:
            raise WorkerUnknown(f"worker {worker_id} is not registered", hint="register again")
        held = {_fence(r): Standing(r["standing"]) for r in rows if r["job_id"] is not None}
        first = rows[0]
        return Renewal(held, first["command"], first["gangs_after_s"], first["suspected"])

    def report(
        self,
        fence: Fence,
        phase: Phase,
        *,
        progress: float | None = None,
        devices: Sequence[str] | None = None,
        replaced_by: UUID | None = None,
    ) -> Standing:
        """Record a lease's phase and progress. Return `lost` if the lease is gone.

        `replaced_by` is the boot of an agent that continues the job of an earlier one, which is
        recorded once. A member of a run that is `stopping` has the others stop too, so that all of
        them store their last checkpoints.
        """
        row = self.database.row(
            "report",
            again=True,
            **fence_params(fence),
            phase=phase.value,
            progress=share(progress),
            devices=None if devices is None else list(devices),
        )
        if row is None:
            return Standing.LOST
        if replaced_by is not None:
            named = {**fence_params(fence), "boot_id": replaced_by, "phase": phase.value}
            self.database.rows("replaced", again=True, **named)
        if phase is Phase.STOPPING and row["nodes"] > 1:
            self.runs.ask(fence)
        if phase is Phase.FINISHING and row["nodes"] > 1 and row["asked"] == Asked.ENDED:
            self.runs.keep(fence)
        return Standing(row["asked"] or Standing.OK)

    def gather(self, fence: Fence, step: int, member: Mapping[str, JsonValue]) -> Gathering:
        """Record how far a member of a run has come; return its status and all members by rank.

        Args:
            fence: the member's lease.
            step: 1 if it is prepared, 2 if it can reach the master; never taken back.
            member: what it tells the others, for example its address.
        """
        rows = self.database.rows(
            "gather", again=True, **fence_params(fence), step=step, member=Jsonb(member)
        )
        if not rows:
            return Gathering(Standing.LOST)
        standing = Standing(rows[0]["asked"] or Standing.OK)
        members = [Member(**{name: row[name] for name in MEMBER}) for row in rows]
        return Gathering(standing, members)

    def cancel(self, job_id: int, *, reason: str | None = None) -> State:
        """Cancel a job and return its state, which is `running` until its worker has stopped it.

        The `reason` is for the audit trail.

        Raises:
            JobUnknown: there is no such job.
        """
        row = self._acts.cancel_each([job_id], reason=reason).get(job_id)
        if row is None:
            raise job_unknown(job_id)
        return State(row["state"])

    def preempt(self, job_id: int) -> bool:
        """Ask for a running job back, as a spot notice would; return False if it is not running.

        Raises:
            JobUnknown: there is no such job.
        """
        self._job_exists(job_id)
        params = {"job_id": job_id, "actor": self.actor, "owner": None}
        row = self.database.row("preempt", again=True, **params)
        return row is not None

    def retry(self, job_id: int, checkpoint: tuple[int, int] | None = None) -> None:
        """Give a failed or dead job fresh budgets and make it ready.

        Its next attempt begins with its newest checkpoint, or with that of an attempt and number.

        Raises:
            JobUnknown: there is no such job.
            NotRetryable: it is unfinished, succeeded or was cancelled.
            CheckpointUnknown: it has no such checkpoint.
        """
        row = self._acts.retry_each([job_id], checkpoint).get(job_id)
        if row is None or row["became"] != "retried":
            state = self._job_exists(job_id)
            if checkpoint and state in {State.FAILED, State.DEAD}:
                from forge_schema.queue.inputs import no_checkpoint  # noqa: PLC0415 - as for a submit

                raise no_checkpoint(job_id, *checkpoint)
            raise NotRetryable(
                f"job {job_id} {in_state(in_words(state))}; only a failed job can be retried",
                hint=f"`forge rerun {job_id}` submits it again",
            )

    def _job_exists(self, job_id: int) -> State:
        row = self.database.row("job", again=True, job_id=job_id)
        if row is None:
            raise job_unknown(job_id)
        return State(row["state"])


def _is_plain(end: End) -> bool:
    return end.reason.budget is Budget.SUCCESS and end.detail is None


def _fence(row: dict[str, Any]) -> Fence:
    return Fence(row["job_id"], row["token"], row["nonce"])


def _repeated(end: End, stored: Ended | None) -> Ended:
    # An end by somebody else (the sweeper's `worker_lost`) is not a repeat.
    if stored is None:
        return Ended(end.fence.job_id, accepted=False)
    return replace(stored, accepted=stored.reason is end.reason)


def _succeeded(fence: Fence) -> Ended:
    return Ended(fence.job_id, accepted=True, reason=Reason.SUCCEEDED, state=State.SUCCEEDED)


def _ended(row: dict[str, Any]) -> Ended:
    return Ended(
        row["job_id"], accepted=True, reason=Reason(row["reason"]), state=State(row["state"])
    )
