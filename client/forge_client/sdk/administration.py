"""Workers, queues, limits, approvals, keys, the audit trail and reports."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict, TypeVar, Unpack

from forge_schema.model.admin import (
    ApiKey,
    AwaitingApproval,
    Invitation,
    OwnerLimits,
    OwnerSettings,
    Preemption,
    QueueChanges,
    QueueInfo,
    Secret,
    Team,
    TeamChanges,
    TeamStatus,
    WhenSpent,
    invitation_line,
)
from forge_schema.model.job import Event
from forge_schema.model.overview import Overview
from forge_schema.model.states import Role
from forge_schema.model.worker import WorkerInfo
from forge_schema.service.admin import INVITATION_LASTS, invite
from pydantic import BaseModel, ValidationError

from forge_client.backend import Backend, Check
from forge_client.connection import reached, vouched
from forge_client.errors import InvalidInput
from forge_client.project.request import invalid, several
from forge_client.results.names import (
    age,
    find_worker,
    joining,
    newcomer,
    require_members,
    require_present,
    require_queue,
    unused,
)
from forge_client.sdk.arguments import checked_verbs, lifetime, require_choice
from forge_client.sdk.rows import Rows
from forge_client.sdk.sending import warn
from forge_client.settings import Settings

M = TypeVar("M", bound=BaseModel)
PAGE = 1000
LAST_DAY = timedelta(days=1)


class QueueLimits(TypedDict, total=False):
    """How much of a queue runs at once, and which GPUs others only borrow.

    None means no limit, and a limit left out stays.
    """

    max_jobs: int | None
    max_gpus: int | None
    guaranteed_gpus: int | None


class TeamsLimits(QueueLimits, total=False):
    """The limits and the budget of a team, of all its owners together."""

    gpu_hours_per_month: float | None
    cost_per_month: float | None
    when_spent: WhenSpent


class OwnersLimits(TeamsLimits, total=False):
    """An owner's limits, weight and budget, and what a request may spend without approval."""

    weight: float
    approve_gpu_hours: float | None
    approve_cost: float | None


@checked_verbs
class Administration:
    """What the commands under Control and Administration do; most of it needs the role admin."""

    backend: Backend
    _settings: Settings

    def workers(self) -> Rows[WorkerInfo]:
        """Return every worker."""
        return Rows(self.backend.workers())

    def drain(self, worker: str | int, *, undo: bool = False) -> None:
        """Let a worker, by name or id, finish its jobs and take no new ones."""
        self.backend.drain(self._worker(worker), undo=undo)

    def create_worker(
        self,
        name: str,
        *,
        ephemeral: bool = False,
        labels: Mapping[str, str] | None = None,
        lasts: timedelta | str | None = None,
        public_key: bytes | None = None,
    ) -> Secret:
        """Create a worker; return its id and its token, which cannot be read again.

        With an Ed25519 public key, it must sign every request.
        """
        return self.backend.admin.create_worker(
            name,
            ephemeral=ephemeral,
            labels=_labels(labels),
            lasts=lifetime(lasts),
            public_key=public_key,
        )

    def add_worker(
        self,
        name: str,
        *,
        server: str | None = None,
        ephemeral: bool = False,
        labels: Mapping[str, str] | None = None,
        lasts: timedelta | str | None = None,
    ) -> Invitation:
        """Make a worker that waits for its machine; return the line to paste there.

        Without `lasts`, the line is valid for a day. `server` is the server's URL for the machine,
        if it is another one there.
        """
        return self.backend.admin.invite_worker(
            name, url=server, ephemeral=ephemeral, labels=_labels(labels), lasts=lifetime(lasts)
        )

    def upgrade_line(self, *, server: str | None = None) -> str:
        """Return the line that upgrades each machine which has joined, to the server's version.

        `server` is its URL for the machines, if it is another there.
        """
        return self.backend.admin.upgrade_line(url=server).line

    def rotate_worker(
        self,
        worker: str | int,
        *,
        lasts: timedelta | str | None = None,
        public_key: bytes | None = None,
    ) -> str:
        """Replace a worker's token and return the new one. The old one stops working.

        A public key stays, unless another one is given.
        """
        return self.backend.admin.rotate_worker(
            self._worker(worker), lasts=lifetime(lasts), public_key=public_key
        )

    def delete_worker(self, worker: str | int) -> None:
        """Remove an offline worker and its token."""
        self.backend.admin.delete_worker(self._worker(worker))

    def queues(self) -> Rows[QueueInfo]:
        """Return the queues: their waiting and running jobs, and their limits."""
        return Rows(self.backend.admin.queues())

    def pause(self, queue: str) -> None:
        """Stop starting jobs from a queue. Running jobs continue."""
        self._note_new(queue)
        self.backend.admin.pause(queue)

    def resume(self, queue: str) -> None:
        """Start jobs from a paused queue again."""
        require_queue(queue, self._queues())
        self.backend.admin.pause(queue, paused=False)

    def limit_queue(self, queue: str, **limits: Unpack[QueueLimits]) -> None:
        """Limit how much of a queue runs at once. Limits left out stay; None removes one."""
        self._note_new(queue)
        changed = _made(QueueChanges, limits).model_dump(exclude_unset=True)
        self.backend.admin.change_queue(queue, changed)

    def remove_queue(self, queue: str) -> None:
        """Remove a queue that no job is in, with its settings; a later job makes it anew."""
        self.backend.admin.remove_queue(queue)

    def set_queue(
        self,
        queue: str,
        *,
        preemption: Preemption | None = None,
        preempts_after_s: int | None = None,
        most_preempted: int | None = None,
    ) -> None:
        """Set whether running jobs leave for waiting ones of a higher priority.

        Those leave that have run for `preempts_after_s` seconds, at most `most_preempted` at once.
        None changes nothing.
        """
        given = {
            "preemption": preemption,
            "preempts_after_s": preempts_after_s,
            "most_preempted": most_preempted,
        }
        changed = {name: value for name, value in given.items() if value is not None}
        self.backend.admin.change_queue(
            queue, _made(QueueChanges, changed).model_dump(exclude_unset=True)
        )

    def owners(self) -> Rows[OwnerLimits]:
        """Return the owners with their limits."""
        return Rows(self.backend.admin.owner_limits())

    def limit_owner(self, owner: str, **limits: Unpack[OwnersLimits]) -> None:
        """Limit how much of an owner runs at once, set their weight, approvals or budget.

        Settings left out stay; None removes a limit.
        """
        listed = self.backend.admin.owner_limits()
        if remark := newcomer(owner, [row.owner for row in listed]):
            warn(remark)
        known = next((row for row in listed if row.owner == owner), OwnerSettings())
        kept = {name: getattr(known, name) for name in ("max_jobs", "max_gpus", "weight")}
        self.backend.admin.limit_owner(owner, _made(OwnerSettings, {**kept, **limits}))

    def approvals(
        self, *, owner: str | None = None, sweep: str | None = None
    ) -> Rows[AwaitingApproval]:
        """Return the jobs that wait for an admin's approval."""
        return Rows(self._approvals(owner, sweep))

    def _approvals(self, owner: str | None, sweep: str | None) -> Iterator[AwaitingApproval]:
        after = 0
        while page := self.backend.admin.approvals(
            owner=owner, sweep=sweep, after=after, count=PAGE
        ):
            yield from page
            after = page[-1].job_id

    def approve(self, job_ids: Sequence[int]) -> int:
        """Approve jobs; return how many are approved, now or before.

        Raises:
            ClientError: some do not exist; the others are approved.
        """
        pages = [
            self.backend.admin.approve(job_ids[at : at + PAGE])
            for at in range(0, len(job_ids), PAGE)
        ]
        require_present(pages)
        return sum(page.approved for page in pages)

    def keys(self) -> Rows[ApiKey]:
        """Return the API keys."""
        return Rows(self.backend.admin.api_keys())

    def create_key(
        self,
        owner: str,
        role: str,
        *,
        name: str = "",
        lasts: timedelta | str | None = None,
        public_key: bytes | None = None,
        team: str | None = None,
        everyone: bool | None = None,
        invitation: bool | None = None,
    ) -> Secret:
        """Create an API key; return its id and its text, which cannot be read again.

        With an Ed25519 public key, every request must be signed. Besides its owner's jobs it sees
        those of a team, or of everyone, and changes none of them. An invitation expires, unless
        whoever gets it accepts it: `forge login URL --invitation TEXT`.
        """
        require_choice("role", role, [*Role])
        return self.backend.admin.create_key(
            owner, role, name=name, lasts=lifetime(lasts), public_key=public_key, team=team,
            everyone=everyone, invitation=invitation,
        )  # fmt: skip

    def invite(
        self,
        owners: Sequence[str] | str,
        *,
        team: str | None = None,
        role: str = "submitter",
        lasts: timedelta | str = INVITATION_LASTS,
        server: str | None = None,
    ) -> list[str]:
        """Return a line for each person, with which the person gets a key of their own.

        They join the team, and see its jobs. A line works once; `server` is the URL in it, if they
        reach the server under another one.
        """
        require_choice("role", role, [*Role])
        if team and (remark := joining(team, several(owners), self.backend.teams())):
            warn(remark)
        url = server or reached(self._settings)
        trust, lasting = vouched(url, self._settings, warn), lifetime(lasts) or INVITATION_LASTS
        made = (
            invite(self.backend.admin, owner, Role(role), team=team, lasts=lasting)
            for owner in several(owners)
        )
        return [invitation_line(url, secret.text, trust) for secret in made]

    def teams(self) -> Rows[Team]:
        """Return the teams that you see, with their owners."""
        return Rows(self.backend.teams())

    def team(self, name: str) -> TeamStatus:
        """Return a team that you see: its members, their jobs of now, and what they used."""
        return self.backend.team(name)

    def change_team(
        self,
        name: str,
        *,
        join: Sequence[str] = (),
        leave: Sequence[str] = (),
        **limits: Unpack[TeamsLimits],
    ) -> Team:
        """Have owners join and leave a team, which is made if it is new, and limit it; return it.

        Limits left out stay; None removes one.
        """
        changes = _made(TeamChanges, {"join": several(join), "leave": several(leave), **limits})
        if leave:
            require_members(self.backend.team(name), changes.leave)
        if join and (remark := joining(name, changes.join, self.backend.teams())):
            warn(remark)
        return self.backend.admin.change_team(name, changes)

    def remove_team(self, name: str) -> None:
        """Remove a team; its owners stay."""
        self.backend.admin.remove_team(name)

    def rotate_key(self, key_id: str | int) -> str:
        """Replace the text of an API key and return the new one. The old one stops working."""
        return self.backend.admin.rotate_key(str(key_id))

    def revoke_key(self, key_id: str | int) -> None:
        """Make an API key stop working."""
        self.backend.admin.revoke_key(str(key_id))

    def events(
        self,
        *,
        since: timedelta | str = LAST_DAY,
        after: datetime | None = None,
        actor: str | None = None,
        action: str | None = None,
        count: int = 1000,
    ) -> Rows[Event]:
        """Return the audit trail of all jobs and workers, oldest first; `job.events()` of one.

        `since` is an age, a day or a time, as `report` takes it.
        """
        return Rows(
            self.backend.admin.events(
                since=age("since", since, self.backend),
                after=after,
                actor=actor,
                action=action,
                count=count,
            )
        )

    def reports(self) -> list[str]:
        """Return the names of the reports; each is an SQL view."""
        return self.backend.reports()

    def report(
        self,
        name: str,
        *,
        since: str | None = None,
        until: str | None = None,
        by: Sequence[str] | str = (),
        count: int = 1000,
    ) -> Rows[dict[str, Any]]:
        """Return the rows of a report.

        Args:
            name: one of `reports()`.
            since: how far back: `7d`, `12h`, `yesterday`, `2026-11-01`.
            until: where it ends, in the same forms; that time, or day, is not part of it.
            by: the columns to group by; where `day` is one, `month` is too.
            count: the most rows.

        Raises:
            ClientError: there is no such report, or it has no such column.
        """
        columns = several(by)
        return Rows(self.backend.report(name, since=since, until=until, by=columns, count=count))

    def overview(self) -> Overview:
        """Return what `forge top` shows: the queue in numbers, and what runs."""
        return self.backend.overview(jobs=20, workers=20)

    def health(self) -> list[Check]:
        """Check what Forge consists of, as `forge doctor` does, without raising."""
        return self.backend.health()

    def _queues(self) -> list[str]:
        return [row.name for row in self.backend.admin.queues()]

    def _note_new(self, queue: str) -> None:
        if remark := unused(queue, self._queues()):
            warn(remark)

    def _worker(self, worker: str | int) -> int:
        return worker if isinstance(worker, int) else find_worker(self.backend, worker).id


def _made(kind: type[M], fields: Mapping[str, Any]) -> M:
    """Make a model of the arguments of a call."""
    try:
        return kind(**fields)
    except ValidationError as error:
        raise invalid(error, kind.model_fields) from None


def _labels(labels: Mapping[str, str] | None) -> Mapping[str, str] | None:
    texts = [*labels, *labels.values()] if isinstance(labels, Mapping) else [None]
    if labels is None or all(isinstance(text, str) for text in texts):
        return labels
    raise InvalidInput(
        f"labels are a dictionary of texts, and not {labels!r}", hint='write labels={"team": "nlp"}'
    )
