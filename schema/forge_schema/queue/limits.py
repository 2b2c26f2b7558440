"""Pauses and limits: admins set them, and every claim respects them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from shlex import quote
from typing import TYPE_CHECKING

from psycopg.types.json import Jsonb

from forge_schema.database.pool import Connection, DatabaseActor, Row, run
from forge_schema.model.errors import ForgeError, nearest
from forge_schema.model.quantities import counted

if TYPE_CHECKING:
    from forge_schema.model.admin import OwnerSettings, TeamChanges


@cache
def unset() -> dict[str, object]:
    """Return the settings of a queue that was never set up."""
    # Whoever only removes old tokens needs no models of what admins set.
    from forge_schema.model.admin import QueueSettings  # noqa: PLC0415

    return QueueSettings().model_dump()


class NoSuchTeam(ForgeError):
    """There is no team of this name, or none of the `known` that the caller sees."""

    code = "team_not_found"

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        makes = f"`forge team join {quote(name)} OWNER…` makes one"
        hint = f"{nearest(name, known)}`forge team list` lists them; {makes}"
        super().__init__(f"there is no team {name!r}", hint=hint)


class QueueNotFound(ForgeError):
    """There is no queue of this name."""


class QueueInUse(ForgeError):
    """Jobs are in the queue, or were and are not removed yet."""


class Limits(DatabaseActor):
    """Sets pauses and limits. Each change is in the audit trail, in the same transaction."""

    def set_queue(self, queue: str, settings: Mapping[str, bool | int | str | None]) -> None:
        """Set some of a queue's settings, named as in `unset`; the others stay.

        Every later claim respects them. A limit of None means none.
        """
        params = {**unset(), **settings, "given": Jsonb(dict(settings))}
        self._set("set_queue", params, queue=queue)

    def remove_queue(self, queue: str) -> None:
        """Remove a queue that no job is in, with its settings; a later job makes it anew.

        Raises:
            QueueNotFound: there is no such queue.
            QueueInUse: jobs are in it.
        """
        with self._database.transaction() as connection:
            (row,) = run(connection, "remove_queue", {"queue": queue, "actor": self._actor})
            if row["jobs"] == 0:
                _make_slots(connection)
        if row["jobs"] is None:
            near = nearest(queue, (known["name"] for known in self.queues()))
            raise QueueNotFound(
                f"there is no queue {queue!r}", hint=f"{near}`forge queue list` lists them"
            )
        if row["jobs"]:
            raise QueueInUse(
                f"{counted(row['jobs'], 'job is', 'jobs are')} in the queue {queue}, also of those"
                " that have ended",
                hint=f"`forge ps {quote(f'queue:{queue}')}` lists them; `forge delete` removes what"
                " has ended, `forge change JOB --queue OTHER` moves what waits",
            )

    def queues(self, scope: list[str] | None = None) -> list[Row]:
        """Return the queues that owners in `scope` used, or all, and the jobs of these, by name."""
        return self._database.rows("queues", again=True, scope=scope)

    def owners(self, scope: list[str] | None = None) -> list[Row]:
        """Return the owners in `scope`, or all, with their limits and weight, by name."""
        return self._database.rows("quotas", again=True, scope=scope)

    def limit_owner(self, owner: str, settings: OwnerSettings) -> None:
        """Replace an owner's settings; limits of approvals, and budgets, that were left out stay.

        Every later claim respects `max_jobs`, `max_gpus` and `weight`. Every later request that may
        spend more than `approve_gpu_hours` or `approve_cost` waits for an approval. What was used
        this month is counted at once.
        """
        replaced = settings.model_dump(include={"max_jobs", "max_gpus", "weight"})
        given = {**replaced, **settings.model_dump(exclude_unset=True)}
        params = {**settings.model_dump(), "given": Jsonb(given)}
        self._set("set_owner_quota", params, owner=owner)

    def teams(self, name: str | None = None) -> list[Row]:
        """Return every team with its owners, by name; or the one of a name."""
        return self._database.rows("teams", again=True, name=name)

    def team(self, name: str) -> Row:
        """Return a team with its members, their jobs of now and what they used.

        Raises:
            NoSuchTeam: there is none of this name.
        """
        if not (found := self.teams(name)):
            raise NoSuchTeam(name, (row["name"] for row in self.teams()))
        return {**found[0], "members": self._database.rows("team_members", again=True, name=name)}

    def set_team(self, name: str, changes: TeamChanges) -> Row:
        """Change a team, which is made unless there is one, and return it."""
        with self._database.transaction() as connection:
            run(connection, "lock_owners", {})
            self._set_team(connection, name, changes)
        return next(iter(self.teams(name)))

    def follow_issuer(self, owner: str) -> None:
        """Put an owner into the team that the issuer said last of the actor, or out of its team.

        It makes no team: one that an admin removed would come back without its limits. Who is in a
        team because an admin said so stays there. Idempotent.
        """
        from forge_schema.model.admin import TeamChanges  # noqa: PLC0415 - as above

        who = {"actor": self._actor, "owner": owner}
        with self._database.transaction() as connection:
            run(connection, "lock_owners", {})
            (seen,) = run(connection, "person_view", who)
            if not seen["misplaced"]:
                return
            name, joins = seen["said"] or seen["team"], seen["said"] is not None
            changes = TeamChanges(join=[owner]) if joins else TeamChanges(leave=[owner])
            self._set_team(connection, name, changes, by_issuer=True)

    def _set_team(
        self, connection: Connection, name: str, changes: TeamChanges, *, by_issuer: bool = False
    ) -> None:
        who = {"join": list(changes.join), "leave": list(changes.leave)}
        given = Jsonb(changes.model_dump(exclude={*who}, exclude_unset=True))
        said = {"name": name, "given": given, "by_issuer": by_issuer, "actor": self._actor}
        concerned = run(connection, "set_team", {**changes.model_dump(), **who, **said})
        self._follow_owners(connection, [row["owner"] for row in concerned])

    def remove_team(self, name: str) -> None:
        """Remove a team; its owners stay; `NoSuchTeam` if there is none of this name."""
        with self._database.transaction() as connection:
            run(connection, "lock_owners", {})
            its = run(connection, "delete_team", {"name": name, "actor": self._actor})
            if not its:
                raise NoSuchTeam(name, (row["name"] for row in self.teams()))
            self._follow_owners(connection, its[0]["owners"])

    def _follow_owners(self, connection: Connection, owners: list[str]) -> None:
        """Have lanes and slots follow who is in which team, and the teams' limits and budgets."""
        counted = _count_spending(connection, None, self._actor)
        _follow(connection, None, [*owners, *_concerned(counted)])
        _make_slots(connection)

    def count_spending(self) -> list[tuple[str, int]]:
        """Count what owners and teams with a budget have used, and pause or resume the owners.

        Return the owners whose running jobs have to go once it is spent, each with such a job.
        """
        with self._database.transaction() as connection:
            counted = _count_spending(connection, None, self._actor)
            if owners := _concerned(counted):
                _follow(connection, None, owners)
        return [(row["owner"], job_id) for row in counted for job_id in row["preempted"]]

    def mend_slots(self) -> int:
        """Make the slots of limits agree with what runs; return how many differed."""
        with self._database.transaction() as connection:
            uneven = run(connection, "uneven_limits", {})
            if uneven:
                _make_slots(connection)
        return len(uneven)

    def _set(
        self,
        name: str,
        params: Mapping[str, object],
        *,
        queue: str | None = None,
        owner: str | None = None,
    ) -> None:
        # Each statement's snapshot must include what the previous one waited for: lanes being
        # created, and settings of the owner or queue on the lanes' other side.
        named = {"queue": queue, "owner": owner}
        with self._database.transaction() as connection:
            owners = []
            if owner is not None:
                run(connection, "lock_owners", {})
            run(connection, name, {**params, **named, "actor": self._actor})
            if owner is not None:
                owners = [owner, *_concerned(_count_spending(connection, owner, self._actor))]
            _follow(connection, queue, owners)
            _make_slots(connection)


def _count_spending(connection: Connection, owner: str | None, actor: str) -> list[Row]:
    return run(connection, "count_spending", {"owner": owner, "actor": actor})


def _concerned(counted: list[Row]) -> list[str]:
    return [row["owner"] for row in counted if row["lanes"]]


def _follow(connection: Connection, queue: str | None, owners: list[str]) -> None:
    # Once in a transaction: two rounds would not lock all lanes by id, and for a lane that is
    # updated twice Postgres checks its foreign keys, which waits for lanes being made.
    lanes = {"queue": queue, "owners": owners}
    run(connection, "lock_lanes", lanes)
    run(connection, "lanes_follow", lanes)


def _make_slots(connection: Connection) -> None:
    run(connection, "lock_slots", {})
    run(connection, "make_slots", {})
