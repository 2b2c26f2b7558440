"""API keys, which identify callers of the HTTP functions and set what they may do."""

import secrets
from datetime import timedelta
from enum import Enum, auto

from psycopg.errors import ForeignKeyViolation

from forge_schema.access import tokens
from forge_schema.access.tokens import ParsedToken, TokenKind
from forge_schema.database.pool import DatabaseActor, DatabaseUser, Row
from forge_schema.model.errors import ForgeError
from forge_schema.model.states import Role
from forge_schema.queue.limits import Limits, NoSuchTeam

ID_BYTES = 8


class Unsaid(Enum):
    """What stands for a team when an issuer said nothing of groups."""

    UNSAID = auto()


UNSAID = Unsaid.UNSAID


class NoSuchKey(ForgeError):
    """The API key does not exist or was revoked."""

    code = "key_not_found"


class NotInvited(ForgeError):
    """The key is not an invitation, or not any more."""


class Keys(DatabaseActor):
    """Creates, rotates, revokes and checks keys. Every change is in the audit trail."""

    def create(
        self,
        owner: str,
        role: Role,
        *,
        name: str = "",
        lasts: timedelta | None = None,
        public_key: bytes | None = None,
        team: str | None = None,
        everyone: bool = False,
        invitation: bool = False,
    ) -> tuple[str, str]:
        """Create a key and return its id and its text. The text cannot be read again.

        Args:
            owner: the owner whose jobs the key can reach.
            role: what the key may do.
            name: its name in lists.
            lasts: time until it expires; None means never.
            public_key: an Ed25519 key, 32 bytes. If given, every request must be signed.
            team: the team whose jobs the key sees, too.
            everyone: whether it sees all owners' jobs.
            invitation: whether whoever has it may `accept` it.

        Raises:
            NoSuchTeam: there is no such team.
        """
        key_id = secrets.token_hex(ID_BYTES)
        text, digest = tokens.mint(TokenKind.KEY, key_id)
        try:
            self._database.row(
                "create_key",
                again=True,
                id=key_id,
                owner=owner,
                role=role.value,
                name=name,
                hash=digest,
                lasts=lasts,
                public_key=public_key,
                team=team,
                everyone=everyone,
                invitation=invitation,
                actor=self._actor,
            )
        except ForeignKeyViolation:
            raise NoSuchTeam(str(team)) from None
        return key_id, text

    def rotate(self, key_id: str) -> str:
        """Replace a key's text and return the new one. The old text is invalid at once.

        Raises:
            NoSuchKey: the key does not exist or was revoked.
        """
        text, digest = tokens.mint(TokenKind.KEY, key_id)
        self._changed("rotate_key", key_id, hash=digest)
        return text

    def accept(self, key_id: str, digest: bytes) -> None:
        """Give an invitation another secret, with which it stays until it is revoked.

        Raises:
            NotInvited: it is none, or not any more.
        """
        params = {"id": key_id, "hash": digest, "actor": self._actor}
        if self._database.row("accept_invitation", again=True, **params) is None:
            raise NotInvited(
                "this key is no invitation, or not any more",
                hint="an admin makes one: `forge invite OWNER`",
            )

    def revoke(self, key_id: str) -> None:
        """Revoke a key for good. Idempotent.

        Raises:
            NoSuchKey: the key does not exist.
        """
        self._changed("revoke_key", key_id)

    def listed(self) -> list[Row]:
        """Return all keys, without their hashes."""
        return self._database.rows("keys", again=True)

    def check(self, token: ParsedToken) -> Row | None:
        """Return the valid key that a token belongs to, or None. Record its use."""
        row = self._database.row("use_key", again=True, id=token.id, hash=token.digest)
        if row is None or not tokens.matches(token, row.pop("hash")):
            return None
        return row

    def valid(self, key_id: str) -> Row | None:
        """Return a key or a session that is valid, for a token made from it."""
        return self._database.row("key", again=True, id=key_id)

    def _changed(self, statement: str, key_id: str, **params: object) -> None:
        row = self._database.row(statement, again=True, id=key_id, actor=self._actor, **params)
        if row is None:
            raise NoSuchKey(f"there is no API key {key_id}", hint="`forge key list` lists them")


class Sessions(DatabaseUser):
    """Begins, checks and ends sessions. An admin sees them among the keys, and may revoke them."""

    def begin(
        self,
        acts_for: str,
        owner: str,
        role: Role,
        *,
        name: str,
        address: str,
        lasts: timedelta,
        everyone: bool = False,
    ) -> Row | None:
        """Begin a session and return it, or None if what it acts for is not valid any more.

        Args:
            acts_for: the actor, `key:` and the id of an API key, or `oidc:` and a person's.
            owner: the owner whose jobs it can reach.
            role: what it may do.
            name: its name in lists.
            address: where the person is.
            lasts: the time until it expires.
            everyone: whether a person sees all owners' jobs, unless an admin chose the team.
        """
        session_id = secrets.token_hex(ID_BYTES)
        self._database.row(
            "begin_session",
            again=True,
            id=session_id,
            owner=owner,
            role=role.value,
            name=name,
            hash=tokens.mint(TokenKind.KEY, session_id)[1],
            lasts=lasts,
            actor=acts_for,
            address=address,
            everyone=everyone,
        )
        return self.valid(session_id)

    def note_person(
        self,
        person: str,
        owner: str,
        role: Role,
        issued: float | None,
        team: str | Unsaid | None = UNSAID,
    ) -> Row:
        """Note what an issuer says of a person, for what the person makes and leaves behind.

        Return the `team` that the person sees then, the `others` in it, whether an admin `placed`
        the person there, and whether it was `noted`: within a minute, the same is not.

        Args:
            person: `oidc:` and the person's id.
            owner: the owner whose jobs the person can reach.
            role: what the person may do.
            issued: when the issuer said so, in seconds since the epoch; None for now.
            team: the team to be in, which it enters before this returns; None for none.
        """
        says = not isinstance(team, Unsaid)
        who = {"actor": person, "owner": owner}
        said = {"role": role.value, "issued": issued, "says_team": says}
        team = None if isinstance(team, Unsaid) else team
        noted = self._database.rows("note_standing", again=True, **who, **said, team=team)
        seen = self._seen(**who)
        if says and seen["misplaced"]:
            # By what was noted last: another login may have been later.
            Limits(self._database, actor=person).follow_issuer(owner)
            seen = self._seen(**who)
        return {**seen, "noted": bool(noted)}

    def _seen(self, **who: str) -> Row:
        return next(iter(self._database.rows("person_view", again=True, **who)))

    def end_person(self, person: str) -> None:
        """Note that a person has no role here any more. What the person made goes on no more."""
        self._database.rows("end_standing", again=True, actor=person)

    def valid(self, session_id: str) -> Row | None:
        """Return a session that has not ended, with the hash of its key, or None."""
        row = self._database.row("key", again=True, id=session_id)
        return row if row and row["acts_for"] else None

    def end(self, session_id: str, *, actor: str) -> None:
        """End a session for good. Idempotent."""
        self._database.row("end_session", again=True, id=session_id, actor=actor)
