"""Workers: capabilities, status, when each was last heard from; and API keys of people."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, UniqueConstraint, text
from sqlmodel import SQLModel

from forge_schema.database.tables import columns as c
from forge_schema.model.states import Command, WorkerKind, WorkerStatus


class Worker(SQLModel, table=True):
    """One row per agent, kept across restarts. No column that a heartbeat writes is indexed."""

    __table_args__ = (
        UniqueConstraint("name", name="worker_name"),
        # A worker that an admin created has no resources until it first connects.
        CheckConstraint(
            f"boot_id = '{UUID(int=0)}' OR (cpus > 0 AND memory_mb > 0)", name="capacity_positive"
        ),
        CheckConstraint("octet_length(token_hash) = 32", name="token_hash_sha256"),
        CheckConstraint("octet_length(public_key) = 32", name="worker_public_key_ed25519"),
        CheckConstraint("jsonb_typeof(pinned_labels) = 'object'", name="pinned_labels_object"),
        CheckConstraint("jsonb_typeof(gpus) = 'array'", name="gpus_array"),
        CheckConstraint("jsonb_typeof(labels) = 'object'", name="labels_object"),
        CheckConstraint("jsonb_typeof(condition) = 'object'", name="condition_object"),
        CheckConstraint("jsonb_typeof(speed) = 'object'", name="speed_object"),
        CheckConstraint(
            "gangs_after IS NULL OR unreached_by IS NOT NULL", name="gangs_after_unreached"
        ),
        Index("worker_asked", "id", postgresql_where=text("command IS NOT NULL")),
        Index("worker_suspected", "id", postgresql_where=text("suspected_for IS NOT NULL")),
        {"postgresql_with": {"fillfactor": 50}},
    )

    id: int = c.identity()
    name: str = c.string()
    boot_id: UUID = c.uuid()
    folder_id: UUID | None = c.uuid(null=True)
    kind: WorkerKind = c.word(WorkerKind, default="'persistent'")
    status: WorkerStatus = c.word(WorkerStatus, default="'connecting'")
    accelerator: str = c.string(default="'cpu'")
    gpus: list[dict[str, Any]] = c.document(default="'[]'")
    cpus: float = c.number()
    memory_mb: int = c.integer()
    disk_mb: int = c.integer()
    labels: dict[str, str] = c.document(default="'{}'")
    pinned_labels: dict[str, str] = c.document(default="'{}'")
    local: bool = c.flag()
    price_per_hour: float | None = c.number(null=True)
    version: str = c.string(default="''")
    # Where the other machines of a gang reach it; NULL: it takes no part in gangs.
    address: str | None = c.string(null=True)
    # The workers that could not reach it in its last gangs; see `forge_unreached`.
    unreached_by: list[int] | None = c.bigs(null=True)
    # Until then it takes no part in gangs, because of that.
    gangs_after: datetime | None = c.moment(null=True)
    token_hash: bytes | None = c.octets(null=True)
    token_expires_at: datetime | None = c.moment(null=True)
    # If there is one, all requests of the worker must be signed.
    public_key: bytes | None = c.octets(null=True)
    condition: dict[str, Any] = c.document(default="'{}'")
    command: Command | None = c.word(Command, null=True)
    registered_at: datetime = c.moment()
    connected_at: datetime | None = c.moment(null=True)
    last_seen_at: datetime = c.moment()
    # What the machine measured about itself; see `Speed`.
    speed: dict[str, Any] | None = c.document(null=True)
    # Why it is suspected, and since when, or when it was acquitted last; how often it has
    # rested for that, and until when it does. See `forge_suspect`.
    suspected_for: str | None = c.string(null=True)
    judged_at: datetime | None = c.moment(null=True)
    rests: int = c.small(default="0")
    rests_until: datetime | None = c.moment(null=True)


class Idle(SQLModel, table=True):
    """A worker that found no job and sleeps, and what it has free, of GPUs of one model.

    Whatever makes jobs ready wakes workers by taking their rows. The table is unlogged: after a
    crash of the database every worker looks by itself, and is recorded again.
    """

    __table_args__ = ({"prefixes": ["UNLOGGED"], "postgresql_with": {"fillfactor": 50}},)

    worker_id: int = c.key_big()
    gpu_model: str = c.key_string()
    boot_id: UUID = c.uuid()
    cpus: float = c.number()
    memory_mb: int = c.integer()
    disk_mb: int = c.integer()
    gpus: int = c.integer()
    vram_mb: int = c.integer()
    # How many jobs it takes at once, and the parts of jobs that it has.
    jobs: int = c.small(default="1")
    warm: list[int] = c.integers(default="'{}'")
    # What `forge_speed` makes of the worker's speed, for jobs without and with GPUs.
    cpu_speed: float = c.number(default="0")
    gpu_speed: float = c.number(default="0")
    # Its price per hour, and whether it is a spot machine.
    price: float | None = c.number(null=True)
    spot: bool = c.flag()
    # The name of the worker's next claim, under which a gang may have leased it; see `forge_form`.
    nonce: UUID | None = c.uuid(null=True)
    # Since when it has found nothing, and nobody woke it.
    since: datetime | None = c.moment(null=True)


class FormerWorker(SQLModel, table=True):
    """A removed worker: its attempts and events name its id, but people look for its name."""

    __tablename__ = "former_worker"
    __table_args__ = (Index("former_worker_name", "name", "id"),)

    id: int = c.key_big()
    name: str = c.string()


class ApiKey(SQLModel, table=True):
    """An API key: its owner and its role. Only its SHA-256 is stored.

    A session of a browser `acts_for` another key or a person. A key also sees, and does not change,
    the jobs of a `team` or of `everyone`. Whoever accepts an `invitation` replaces its secret.
    """

    __tablename__ = "api_key"
    __table_args__ = (
        CheckConstraint("role IN ('admin', 'submitter', 'viewer')", name="role_known"),
        CheckConstraint("octet_length(hash) = 32", name="hash_sha256"),
        CheckConstraint("octet_length(public_key) = 32", name="public_key_ed25519"),
        ForeignKeyConstraint(["team"], ["team.name"], name="key_team", ondelete="SET NULL"),
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
    team: str | None = c.string(null=True)
    everyone: bool = c.flag()
    invitation: bool = c.flag()


class Standing(SQLModel, table=True):
    """What a person of an issuer may do, as it said `at` last; `actor` is `oidc:` and the person.

    It ends if an admin ends a session of the person, or if the issuer names no role any more.
    `team` is the one that the groups stand for which it named last; null if they stand for none.
    """

    __table_args__ = (
        CheckConstraint("role IN ('admin', 'submitter', 'viewer')", name="standing_role_known"),
    )

    actor: str = c.key_string()
    owner: str = c.string()
    role: str = c.string()
    at: datetime = c.moment()
    ended_at: datetime | None = c.moment(null=True)
    team: str | None = c.string(null=True)


class RequestNonce(SQLModel, table=True):
    """The nonce of an accepted signed request, kept against replay until its time is over.

    The key is the id of an API key, or `worker:` and a worker's id.
    """

    __tablename__ = "request_nonce"
    __table_args__ = (Index("request_nonce_at", "at"),)

    key_id: str = c.key_string()
    nonce: str = c.key_string()
    at: datetime = c.moment()
