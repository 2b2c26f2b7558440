"""API keys, the people of an issuer, and the nonces of signed requests."""

from datetime import datetime

from sqlalchemy import CheckConstraint, Index
from sqlmodel import SQLModel

from forge_schema.database.tables import columns as c


class ApiKey(SQLModel, table=True):
    """An API key: its owner and its role. Only its SHA-256 is stored.

    A session of a browser `acts_for` another key or a person.
    """

    __tablename__ = "api_key"
    __table_args__ = (
        CheckConstraint("role IN ('admin', 'submitter', 'viewer')", name="role_known"),
        CheckConstraint("octet_length(hash) = 32", name="hash_sha256"),
        CheckConstraint("octet_length(public_key) = 32", name="public_key_ed25519"),
    )

    id: str = c.key_string()
    owner: str = c.string()
    role: str = c.string()
    name: str = c.string(default="''")
    hash: bytes = c.octets()
    public_key: bytes | None = c.octets(null=True)
    created_at: datetime = c.moment()
    expires_at: datetime | None = c.moment(null=True)
    last_used_at: datetime | None = c.moment(null=True)
    revoked_at: datetime | None = c.moment(null=True)
    acts_for: str | None = c.string(null=True)


class Standing(SQLModel, table=True):
    """What a person of an issuer may do, as it said `at` last; `actor` is `oidc:` and the person.

    It ends if an admin ends a session of the person, or if the issuer names no role any more.
    """

    __table_args__ = (
        CheckConstraint("role IN ('admin', 'submitter', 'viewer')", name="standing_role_known"),
    )

    actor: str = c.key_string()
    owner: str = c.string()
    role: str = c.string()
    at: datetime = c.moment()
    ended_at: datetime | None = c.moment(null=True)


class RequestNonce(SQLModel, table=True):
    """The nonce of an accepted signed request, kept against replay until its time is over.

    The key is the id of an API key, or `worker:` and a worker's id.
    """

    __tablename__ = "request_nonce"
    __table_args__ = (Index("request_nonce_at", "at"),)

    key_id: str = c.key_string()
    nonce: str = c.key_string()
    at: datetime = c.moment()
