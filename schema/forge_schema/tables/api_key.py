"""An API key: who a caller of the HTTP functions is and may do."""

from datetime import datetime

from sqlalchemy import CheckConstraint
from sqlmodel import SQLModel

from forge_schema.tables import columns as c


class ApiKey(SQLModel, table=True):
    """Only the key's SHA-256 is stored."""

    __tablename__ = "api_key"
    __table_args__ = (
        CheckConstraint("role IN ('admin', 'submitter', 'viewer')", name="role_known"),
        CheckConstraint("octet_length(hash) = 32", name="hash_sha256"),
    )

    id: str = c.key_string()
    owner: str = c.string()
    role: str = c.string()
    hash: bytes = c.octets()
    created_at: datetime = c.moment()
    expires_at: datetime | None = c.moment(null=True)
    last_used_at: datetime | None = c.moment(null=True)
    revoked_at: datetime | None = c.moment(null=True)
