"""Sessions of people, in a browser or a terminal: keys that act for a person or another key."""

import secrets
from datetime import timedelta

from forge_schema.access import tokens
from forge_schema.access.api_keys import ID_BYTES
from forge_schema.access.tokens import TokenKind
from forge_schema.database.pool import Database, Row
from forge_schema.model.states import Role


class Sessions:
    """Begins, checks and ends sessions. An admin sees them among the keys, and may revoke them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(
        self, acts_for: str, owner: str, role: Role, *, name: str, address: str, lasts: timedelta
    ) -> Row | None:
        """Begin a session and return it, or None if what it acts for is not valid any more.

        Args:
            acts_for: the actor, `key:` and the id of an API key, or `oidc:` and a person's.
            owner: the owner whose jobs it can reach.
            role: what it may do.
            name: its name in lists.
            address: where the person is.
            lasts: the time until it expires.
        """
        session_id = secrets.token_hex(ID_BYTES)
        self._database.one(
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
        )
        return self.valid(session_id)

    def note_person(self, person: str, owner: str, role: Role, issued: float | None) -> None:
        """Note what an issuer says of a person, for what the person makes and leaves behind.

        Args:
            person: `oidc:` and the person's id.
            owner: the owner whose jobs the person can reach.
            role: what the person may do.
            issued: when the issuer said so, in seconds since the epoch; None for now.
        """
        self._database.rows(
            "note_standing", again=True, actor=person, owner=owner, role=role.value, said=issued
        )

    def end_person(self, person: str) -> None:
        """Note that a person has no role here any more. What the person made goes on no more."""
        self._database.rows("end_standing", again=True, actor=person)

    def valid(self, session_id: str) -> Row | None:
        """Return a session that has not ended, with the hash of its key, or None."""
        row = self._database.one("key", again=True, id=session_id)
        return row if row and row["acts_for"] else None

    def end(self, session_id: str, *, actor: str) -> None:
        """End a session for good. Idempotent."""
        self._database.one("end_session", again=True, id=session_id, actor=actor)
