"""The verbs of admins: keys, workers' tokens, limits, approvals, the audit trail."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from forge_schema.access.join_line import PLAIN, join_line
from forge_schema.compatibility import SET_AT_ONCE
from forge_schema.model.admin import (
    ApiKey,
    Approved,
    AwaitingApproval,
    Invitation,
    NewToken,
    OwnerLimits,
    OwnerSettings,
    QueueChanges,
    QueueInfo,
    QueueSettings,
    Secret,
    SecretOfKey,
    SecretOfWorker,
    Team,
    TeamChanges,
    UpgradeLine,
    WorkerNamed,
)
from forge_schema.model.errors import ForgeError
from forge_schema.model.fields import NUMERIC, Flag, Moment, Text, Word
from forge_schema.model.job import Event
from forge_schema.model.states import Role, WorkerKind
from forge_schema.model.stored import PAGE
from forge_schema.service.caller import Verbs
from forge_schema.service.parameters import AfterId, Count, IdInQuery, SomeJobIds
from forge_schema.service.verb import ADMIN, FilledIn, Pages, Sent, verb

if TYPE_CHECKING:
    from forge_schema.access.api_keys import Keys
    from forge_schema.access.worker_tokens import WorkerTokens
    from forge_schema.model.worker import WorkerInfo
    from forge_schema.queue.limits import Limits
    from forge_schema.queue.registry import Registry

LAST_DAY = timedelta(days=1)
DECADE_S = 315_360_000
KEYS, KEY = "/admin/keys", "/admin/keys/{key_id}"
WORKERS, WORKER = "/admin/workers", "/admin/workers/{worker_id}"
# 32 bytes: the last letter before the equals sign has four bits.
ED25519 = "^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$"


def _seconds(duration: timedelta | None, _owner: str | None = None) -> int | None:
    return None if duration is None else math.ceil(duration.total_seconds())


def _duration(seconds: int | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


_LastsS = Annotated[
    int, Field(ge=1, le=DECADE_S, description="seconds; null means no expiry"), NUMERIC
]
Lasts = Annotated[
    timedelta | None, Sent("lasts_s", kind=_LastsS | None, write=_seconds, read=_duration)
]
Since = Annotated[
    timedelta,
    Sent(
        "since_s",
        kind=Annotated[int, Field(ge=1, le=DECADE_S, description="maximum age")],
        write=_seconds,
        read=_duration,
    ),
]
_PublicKey = Annotated[
    str,
    Field(
        pattern=ED25519,
        description="an Ed25519 key in base64; every request must be signed with it",
    ),
]
PublicKey = Annotated[
    bytes | None,
    Sent(
        kind=_PublicKey | None,
        write=lambda key, _owner: None if key is None else base64.b64encode(key).decode(),
        read=lambda text: None if text is None else base64.b64decode(text),
    ),
]
Ephemeral = Annotated[
    bool,
    Sent(
        "kind",
        kind=WorkerKind,
        write=lambda one_job, _owner: WorkerKind.EPHEMERAL if one_job else WorkerKind.PERSISTENT,
        read=lambda kind: kind is WorkerKind.EPHEMERAL,
    ),
]
Labels = Annotated[
    Mapping[str, str] | None,
    Sent(
        kind=Annotated[dict[Word, Word], Field(max_length=100)],
        write=lambda labels, _owner: dict(labels or {}),
    ),
]
QUEUE = "/admin/queues/{name:path}"
QueueName = Annotated[Word, Sent("name")]
SomeOfQueue = Annotated[
    Mapping[str, bool | int | str | None],
    Sent(
        kind=QueueChanges,
        where="whole",
        read=lambda changes: changes.model_dump(exclude_unset=True),
    ),
]
AllOfQueue = Annotated[
    QueueSettings, Sent(where="whole", write=lambda settings, _owner: settings.model_dump())
]
# What was left out stays.
AllOfOwner = Annotated[
    OwnerSettings,
    Sent(where="whole", write=lambda settings, _owner: settings.model_dump(exclude_unset=True)),
]
TEAM = "/admin/teams/{name:path}"
SomeOfTeam = Annotated[
    TeamChanges,
    Sent(where="whole", write=lambda changes, _owner: changes.model_dump(exclude_unset=True)),
]
# The line's maker checks it, with words for people.
PlainUrl = Annotated[Word, Field(json_schema_extra={"pattern": f"^{PLAIN.pattern}$"})]
WorkerName = Annotated[Word, Field(examples=["gpu-1"])]
# Booting a machine, or finding the person who can log in there, takes its time.
LINE_LASTS = timedelta(days=1)
INVITATION_LASTS = timedelta(days=7)


def invite(admin: Admin, owner: str, role: Role, *, team: str | None, lasts: timedelta) -> Secret:
    """Make an invitation for an owner, who joins the team and sees its jobs.

    Raises:
        NameInvalid: nobody can be called so.
    """
    from forge_schema.access.names import check_person

    check_person(owner)
    if team:
        admin.change_team(team, TeamChanges(join=[owner]))
    sees = None if role is Role.ADMIN else team
    return admin.create_key(
        owner, role.value, name="invitation", lasts=lasts, team=sees, invitation=True
    )


class Admin(Verbs):
    """Every act is in the audit trail. Everybody may read the queues, and limits of their own."""

    @verb("GET", KEYS, ADMIN, tag="admin")
    def api_keys(self) -> list[ApiKey]:
        """Return all keys, the newest first."""
        return [ApiKey.model_validate(row) for row in self._keys.listed()]

    @verb(
        "POST", KEYS, ADMIN, again=False, answer=SecretOfKey, errors=(404,), status=201,
        tag="admin",
    )  # fmt: skip
    def create_key(
        self,
        owner: Annotated[Word, Field(examples=["ann"])],
        role: Annotated[str, Sent(kind=Annotated[Role, Field(examples=["submitter"])])],
        *,
        name: Annotated[Text, Field(max_length=200)] = "",
        lasts: Lasts = None,
        public_key: PublicKey = None,
        team: Word | None = None,
        everyone: Flag | None = None,
        invitation: Flag | None = None,
    ) -> Secret:
        """Create a key. If the answer was lost, revoke the key and create another.

        Besides its owner's jobs, it sees those of a `team` or of `everyone`, and changes none of
        them. An `invitation` expires, within a week unless said otherwise; whoever accepts it
        before has a key that stays.

        Raises:
            TooManyKept: the owner has as many valid keys as anybody may.
            NoSuchTeam: there is no such team.
            NameInvalid: nobody can be called so.
        """
        from forge_schema.access.names import check_person

        check_person(owner)
        if (team is not None) + bool(everyone) + (Role(role) is Role.ADMIN) > 1:
            raise ForgeError(
                "a key sees the jobs of a team or of everyone; an admin's sees all anyway",
                hint="choose one of --team, --everyone and --role admin",
                code="option_invalid",
            )
        if invitation:
            lasts = lasts or INVITATION_LASTS
        self._check_room("key", "", owner)
        return Secret(
            *self._keys.create(
                owner, Role(role), name=name, lasts=lasts, public_key=public_key, team=team,
                everyone=bool(everyone), invitation=bool(invitation),
            )
        )  # fmt: skip

    @verb("POST", f"{KEY}/token", ADMIN, again=False, answer=NewToken, errors=(404,), tag="admin")
    def rotate_key(self, key_id: Word) -> str:
        """Replace a key's text. The old one and every token made from it are invalid at once."""
        return self._keys.rotate(key_id)

    @verb("DELETE", KEY, ADMIN, errors=(404,), tag="admin")
    def revoke_key(self, key_id: Word) -> None:
        """Revoke a key for good, with every token made from it. Idempotent."""
        self._keys.revoke(key_id)

    @verb("GET", WORKERS, ADMIN, tag="admin")
    def workers(self) -> list[WorkerInfo]:
        """Return all workers, by name."""
        return self._told_workers(self._registry.workers())

    @verb(
        "POST", WORKERS, ADMIN, again=False, answer=SecretOfWorker, errors=(409,), status=201,
        tag="admin",
    )  # fmt: skip
    def create_worker(
        self,
        name: WorkerName,
        *,
        ephemeral: Ephemeral = False,
        labels: Labels = None,
        lasts: Lasts = None,
        public_key: PublicKey = None,
    ) -> Secret:
        """Create a worker that may connect. If the answer was lost, rotate its token.

        An ephemeral one runs one job. It cannot change the `labels`.
        """
        from forge_schema.access.names import check_worker

        check_worker(name)
        kind = WorkerKind.EPHEMERAL if ephemeral else WorkerKind.PERSISTENT
        worker_id, text = self._workers.create(
            name, kind=kind, labels=labels, lasts=lasts, public_key=public_key
        )
        return Secret(str(worker_id), text)

    # A repeat only replaces a line that nobody has seen.
    @verb("POST", "/admin/invitations", ADMIN, errors=(409,), status=201, tag="admin")
    def invite_worker(
        self,
        name: WorkerName,
        *,
        url: PlainUrl | None = None,
        ephemeral: Ephemeral = False,
        labels: Labels = None,
        lasts: Lasts = None,
        server: FilledIn = "",
        digest: FilledIn = "",
        authority: FilledIn = "",
    ) -> Invitation:
        """Create a worker that waits for its machine, and the line to paste there.

        A repeat, before the worker has connected, makes a new line; the old one is invalid then.

        Args:
            name: the worker's name.
            url: where the machine reaches the server, if not as the caller does.
            ephemeral: whether it exits after one job.
            labels: labels that override those the worker reports.
            lasts: time until the line expires; a day, if it is not given.
            server: where the caller reaches the server.
            digest: the SHA-256 of the server's package.
            authority: the fingerprint of the server's own authority, if it has one.
        """
        from forge_schema.access.names import check_worker

        check_worker(name)
        kind = WorkerKind.EPHEMERAL if ephemeral else WorkerKind.PERSISTENT
        lasts = LINE_LASTS if lasts is None else lasts
        url = url or server
        join_line(url, "", digest)  # A URL that cannot be used must not change anything.
        worker_id, token = self._workers.invite(name, kind=kind, labels=labels, lasts=lasts)
        line = join_line(url, token, digest, authority)
        lasts_s = int(lasts.total_seconds())
        return Invitation(id=worker_id, line=line, url=url, lasts_s=lasts_s)

    @verb("GET", "/admin/upgrade-line", ADMIN, tag="admin")
    def upgrade_line(
        self,
        *,
        url: PlainUrl | None = None,
        server: FilledIn = "",
        digest: FilledIn = "",
        authority: FilledIn = "",
    ) -> UpgradeLine:
        """Return the line to paste on machines that have joined, for the server's version.

        It is the same for all of them and holds no secret.

        Args:
            url: where the machines reach the server, if not as the caller does.
            server: where the caller reaches the server.
            digest: the SHA-256 of the server's package.
            authority: the fingerprint of the server's own authority, if it has one.
        """
        url = url or server
        return UpgradeLine(line=join_line(url, "", digest, authority), url=url)

    @verb("POST", f"{WORKER}/token", ADMIN, answer=NewToken, errors=(404,), tag="admin", bare=True)
    def rotate_worker(
        self, worker_id: IdInQuery, *, lasts: Lasts = None, public_key: PublicKey = None
    ) -> str:
        """Replace a worker's token. The old one is invalid at once.

        Without a new public key, the old one stays.
        """
        return self._workers.rotate(worker_id, lasts=lasts, public_key=public_key)

    @verb("GET", f"{WORKERS}/named/newest", ADMIN, answer=WorkerNamed, errors=(404,), tag="admin")
    def worker_named(self, name: Word) -> int:
        """Return the id of the newest worker with a name, removed ones included."""
        return self._registry.named(name)

    @verb("DELETE", WORKER, ADMIN, again=False, errors=(404, 409), tag="admin")
    def delete_worker(self, worker_id: IdInQuery) -> None:
        """Delete a worker that is offline or never connected, and its token."""
        self._workers.delete(worker_id)

    @verb("GET", "/admin/events", ADMIN, pages=Pages({"after": "at"}), tag="admin")
    def events(
        self,
        *,
        since: Since = LAST_DAY,
        after: Moment | None = None,
        job_id: IdInQuery | None = None,
        worker_id: IdInQuery | None = None,
        actor: Word | None = None,
        action: Word | None = None,
        count: Count = PAGE,
    ) -> list[Event]:
        """Return events of the audit trail after a time, or else the newest; oldest first.

        Events of one time are never split between pages, so a page may have more than `count`.
        """
        from forge_schema.read.audit import Audit

        rows = Audit(self._database).events(
            since=since,
            after=after,
            job_id=job_id,
            worker_id=worker_id,
            actor=actor,
            action=action,
            count=count,
        )
        return [Event.model_validate(row) for row in rows]

    @verb("GET", "/admin/queues", tag="admin")
    def queues(self) -> list[QueueInfo]:
        """Return the queues that you have used, by name, with those of your jobs that are in them.

        Who sees all owners is told of all queues ever used or configured, and all jobs.
        """
        rows = self._limits.queues(self.caller.scope)
        return [QueueInfo.model_validate(row) for row in rows]

    def pause(self, queue: str, *, paused: bool = True) -> None:
        """Stop starting jobs from a queue, or start them again."""
        self.change_queue(queue, {"paused": paused})

    def limit_queue(self, queue: str, *, max_jobs: int | None, max_gpus: int | None) -> None:
        """Limit the jobs and GPUs of a queue that run at once; None is no limit."""
        self.change_queue(queue, {"max_jobs": max_jobs, "max_gpus": max_gpus})

    # 404: a name with a line break matches no path.
    @verb("PATCH", QUEUE, ADMIN, errors=(404,), tag="admin")
    def change_queue(self, queue: QueueName, settings: SomeOfQueue) -> None:
        """Change some settings of a queue. Those left out stay; a null limit means none."""
        self._set_queue(queue, settings)

    @verb("PUT", QUEUE, ADMIN, errors=(404,), tag="admin")
    def set_queue(self, queue: QueueName, settings: AllOfQueue) -> None:
        """Limit how many jobs and GPUs of a queue run at once, and set whether it is paused."""
        replaced = settings.model_dump(include=SET_AT_ONCE)
        self._set_queue(queue, {**replaced, **settings.model_dump(exclude_unset=True)})

    @verb("DELETE", QUEUE, ADMIN, again=False, errors=(404, 409), tag="admin")
    def remove_queue(self, queue: QueueName) -> None:
        """Remove a queue that no job is in, with its settings. A later job in it makes it anew."""
        self._limits.remove_queue(queue)

    def _set_queue(self, queue: str, settings: Mapping[str, bool | int | str | None]) -> None:
        from forge_schema.access.names import check_name

        check_name(queue, "a queue")
        self._limits.set_queue(queue, settings)

    @verb("GET", "/admin/quotas", tag="admin")
    def owner_limits(self) -> list[OwnerLimits]:
        """Return the limits and budgets of all owners whose jobs you see, by name.

        An owner who never submitted and was never configured is not there.
        """
        rows = self._limits.owners(self.caller.scope)
        return [OwnerLimits.model_validate(row) for row in rows]

    @verb("PUT", "/admin/quotas/{owner:path}", ADMIN, errors=(404,), tag="admin")
    def limit_owner(self, owner: Word, settings: AllOfOwner) -> None:
        """Limit what of an owner runs at once and may be spent without approval; set the weight."""
        from forge_schema.access.names import check_name

        check_name(owner, "an owner")
        self._limits.limit_owner(owner, settings)

    @verb("PATCH", TEAM, ADMIN, errors=(404,), tag="admin")
    def change_team(self, name: Word, changes: SomeOfTeam) -> Team:
        """Have owners join and leave a team, which is made unless there is one. Idempotent."""
        from forge_schema.access.names import check_person, check_team

        if not changes.leave:
            check_team(name)
        for owner in changes.join:
            check_person(owner)
        return Team.model_validate(self._limits.set_team(name, changes))

    @verb("DELETE", TEAM, ADMIN, again=False, errors=(404,), tag="admin")
    def remove_team(self, name: Word) -> None:
        """Remove a team. Its owners stay; its keys see only their own owner's jobs then."""
        self._limits.remove_team(name)

    @verb("GET", "/admin/approvals", ADMIN, pages=Pages({"after": "job_id"}), tag="admin")
    def approvals(
        self,
        *,
        owner: Word | None = None,
        sweep: Word | None = None,
        after: AfterId = 0,
        count: Count = PAGE,
    ) -> list[AwaitingApproval]:
        """Return the jobs after an id that wait for approval, the oldest first."""
        rows = self._database.rows(
            "approvals", again=True, owner=owner, sweep=sweep, after=after, count=count
        )
        return [AwaitingApproval.model_validate(row) for row in rows]

    @verb("POST", "/admin/approvals", ADMIN, tag="admin")
    def approve(self, job_ids: SomeJobIds) -> Approved:
        """Approve jobs. Those that wait for nothing else are ready at once. Idempotent."""
        from forge_schema.queue.cancel_retry import JobActs

        return JobActs(self._database, owner=None, actor=self.caller.actor).approve(job_ids)

    @property
    def _registry(self) -> Registry:
        from forge_schema.queue.registry import Registry

        return Registry(self._database, actor=self.caller.actor)

    @property
    def _keys(self) -> Keys:
        from forge_schema.access.api_keys import Keys

        return Keys(self._database, actor=self.caller.actor)

    @property
    def _workers(self) -> WorkerTokens:
        from forge_schema.access.worker_tokens import WorkerTokens

        return WorkerTokens(self._database, actor=self.caller.actor)

    @property
    def _limits(self) -> Limits:
        from forge_schema.queue.limits import Limits

        return Limits(self._database, actor=self.caller.actor)
