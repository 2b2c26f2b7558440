"""Callers: who they are, what they may do, and the base of the verbs that they call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from forge_schema.model.errors import ForgeError
from forge_schema.model.job import job_unknown, possible_job
from forge_schema.model.quantities import size_text
from forge_schema.model.states import Role

if TYPE_CHECKING:
    from forge_schema.database.pool import Database, Row
    from forge_schema.model.worker import WorkerInfo
    from forge_schema.read.jobs import Jobs
    from forge_schema.service.verb import Remote

RANK = {Role.VIEWER: 0, Role.SUBMITTER: 1, Role.ADMIN: 2}


# Of each owner. A notification sends to others, and a schedule submits, for each of its events.
MOST_KEPT = {"notification": 50, "schedule": 100, "template": 500, "input": 500, "key": 200}
REMOVED_BY = {"key": "revoke KEY"}
# Of the jobs in schedules, and in templates: they are listed together.
MOST_KEPT_BYTES = 2 << 20


class TooManyKept(ForgeError):
    """The owner has as many things of this kind as anybody may."""


class Forbidden(ForgeError):
    """The caller's role is too low."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="ask an admin for a key with a higher role")


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller; `key_id` is set if the request carried the API key itself.

    `session` is the id of the session that the request came in, if any. `others` are the owners
    whose jobs the caller sees besides, and does not change, those of `team` now; None is all.
    """

    owner: str
    role: Role
    actor: str
    key_id: str | None = None
    session: str = ""
    others: tuple[str, ...] | None = ()
    team: str | None = None

    @classmethod
    def holding(cls, key: Row, actor: str, **more: Any) -> Self:  # noqa: ANN401 - its other fields
        """Return the caller with an API key or a session, as `Keys` returns it."""
        others = None if key["others"] is None else tuple(key["others"])
        seen = {"others": others, "team": key["team"]}
        return cls(key["owner"], Role(key["role"]), actor, **seen, **more)

    @property
    def admin(self) -> bool:
        """Whether the caller may see and change every owner's jobs."""
        return self.role is Role.ADMIN

    @property
    def everyone(self) -> bool:
        """Whether the caller sees every owner's jobs, and what only admins set."""
        return self.admin or self.others is None

    @property
    def scope(self) -> list[str] | None:
        """The owners whose jobs the caller sees; None for all owners."""
        return None if self.everyone else [self.owner, *(self.others or ())]

    @property
    def view(self) -> dict[str, Any]:
        """Who the caller is to what is only shown to some: `owner`, `scope` and `team`."""
        return {"owner": self.owner, "scope": self.scope, "team": self.team}

    @property
    def own(self) -> str | None:
        """The owner whose jobs the caller changes; None for all owners."""
        return None if self.admin else self.owner

    @property
    def several(self) -> bool:
        """Whether the caller sees jobs of more than one owner."""
        return self.everyone or bool(self.others)

    def sees(self, owner: str | None) -> bool:
        """Tell whether the caller sees an owner's jobs; None is whatever the caller sees."""
        return owner is None or self.scope is None or owner in self.scope

    def sees_team(self, team: str) -> bool:
        """Tell whether the caller sees a team's jobs, whoever is in it."""
        return self.everyone or self.team == team

    def within(self, owner: str | None) -> list[str] | None:
        """Return the scope, or of it only an owner whom the caller sees."""
        if owner is None:
            return self.scope
        return [owner] if self.sees(owner) else []

    def changes(self, owner: str) -> bool:
        """Tell whether the caller may change what an owner has."""
        return self.admin or (owner == self.owner and self.may(Role.SUBMITTER))

    def may(self, role: Role, *, reading: bool = False) -> bool:
        """Tell whether the caller has this role or a higher one; who sees all owners reads all."""
        return RANK[self.role] >= RANK[role] or (reading and self.everyone)

    def require(self, role: Role, *, reading: bool = False) -> None:
        """Let callers pass who `may`.

        Raises:
            Forbidden: the caller's role is lower.
        """
        if not self.may(role, reading=reading):
            raise Forbidden(f"this needs the role {role.value}; yours is {self.role.value}")

    def acting_for(self, owner: str | None, what: str, *, reading: bool = False) -> str:
        """Return the owner to act for, by default the caller; `what` names the act.

        Raises:
            Forbidden: it is another owner, and the caller neither an admin nor only `reading` what
                the caller sees.
        """
        whose = owner or self.owner
        if not (whose == self.owner or self.admin or (reading and self.sees(whose))):
            raise Forbidden(f"only an admin may {what} of another owner")
        return whose


class Verbs:
    """The base of the service's classes.

    Args:
        caller: who acts.
        database: opens the database; called by each verb, and not before.
    """

    remote: Remote | None = None
    """The server that does the verbs, if they are not done here."""

    def __init__(self, caller: Caller, database: Callable[[], Database]) -> None:
        self.caller = caller
        self._open_database = database

    @classmethod
    def of(cls, remote: Remote) -> Self:
        """Return the verbs as a server does them."""
        verbs = cls.__new__(cls)
        verbs.remote = remote
        return verbs

    @property
    def _database(self) -> Database:
        return self._open_database()

    def _told_workers(self, workers: Sequence[Row]) -> list[WorkerInfo]:
        """Return workers, of whose secrets the caller is told those names that it may know."""
        from forge_schema.access.names import with_secrets
        from forge_schema.model.worker import WorkerInfo

        rows = with_secrets(self._database, workers, **self.caller.view)
        return [WorkerInfo.model_validate(row) for row in rows]

    @property
    def _jobs(self) -> Jobs:
        from forge_schema.read.jobs import Jobs

        return Jobs(self._database)

    def _visible(self, job_id: int) -> Row:
        """Return a job."""
        row = self._jobs.job(possible_job(job_id))
        if not self.caller.sees(row["owner"]):
            raise job_unknown(job_id)
        return row

    def _check_room(
        self, kind: str, name: str, owner: str | None, spec: Mapping[str, Any] | None = None
    ) -> None:
        """Let an owner keep one more thing of a kind, or change the one with this name."""
        from forge_schema.access.names import check_name

        if owner:
            check_name(owner, "an owner")
        if name:
            check_name(name, f"{'an' if kind == 'input' else 'a'} {kind}")
        whose = owner or self.caller.owner
        row = self._database.row("kept_by_owner", again=True, kind=kind, owner=whose, name=name)
        if row is not None and row["others"] >= MOST_KEPT[kind]:
            raise TooManyKept(
                f"{whose} has {MOST_KEPT[kind]} {kind}s, and nobody may have more",
                hint=f"remove one with `forge {kind} {REMOVED_BY.get(kind, 'remove NAME')}`",
            )
        size = len(json.dumps(spec, default=str)) if spec else 0
        if row is not None and size and row["bytes"] + size > MOST_KEPT_BYTES:
            raise TooManyKept(
                f"the jobs in all {kind}s of {whose} would have more than"
                f" {size_text(MOST_KEPT_BYTES)}",
                hint="put what is large into files of the project",
            )


def key_of_invitation(invitation: str) -> tuple[str, str]:
    """Return the key that an invitation becomes, its secret made here, and the SHA-256 of its text.

    Raises:
        TokenMalformed: it is not an API key, or was not copied completely.
    """
    from forge_schema.access import tokens

    key_id = tokens.parse(invitation, tokens.TokenKind.KEY).id
    text, digest = tokens.mint(tokens.TokenKind.KEY, key_id)
    return text, digest.hex()
