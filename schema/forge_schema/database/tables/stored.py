"""The index rows of stored objects, each written after the upload is complete."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, Index, text
from sqlmodel import SQLModel

from forge_schema.database.tables import columns as c


class Upload(SQLModel, table=True):
    """An owner who has uploaded the bundle or saved image with this SHA-256, and so may run it."""

    __table_args__ = (CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name="sha256_form"),)

    owner: str = c.key_string()
    sha256: str = c.key_string()
    created_at: datetime = c.moment()


class Checkpoint(SQLModel, table=True):
    """A checkpoint of one rank. `key` is its manifest; the newest has the highest (token, number).

    Each rank of a run has a token, and numbers its checkpoints alone. One of rank 0 is complete if
    it is alone (`nodes` is 1), or as soon as every other rank has one that belongs to it: see
    `forge_companions`. One of another rank `follows` rank 0's of this number and those before.

    `killed` tells that it was stored after its program had been killed, maybe while it wrote. Rank
    0's is `passed_over` by later attempts if that attempt failed soon after it had begun with it,
    or had stored it before it failed so; 0 if somebody chose an older one. A `trusted` one is not
    blamed for a failure.
    """

    __table_args__ = (
        CheckConstraint("bytes >= 0 AND files >= 0", name="sizes_not_negative"),
        CheckConstraint("(rank = 0) = (follows IS NULL)", name="other_ranks_follow"),
        CheckConstraint("nodes >= 1", name="nodes_positive"),
    )

    job_id: int = c.key_big()
    token: int = c.key_big()
    number: int = c.key_integer()
    attempt: int = c.small()
    key: str = c.string()
    files: int = c.integer()
    bytes: int = c.big()
    created_at: datetime = c.moment()
    rank: int = c.small(default="0")
    nodes: int = c.small(default="1")
    follows: int | None = c.integer(null=True)
    step: int | None = c.big(null=True)
    killed: bool = c.flag(default="false")
    trusted: bool = c.flag(default="false")
    passed_over: int | None = c.small(null=True)


class Beginning(SQLModel, table=True):
    """The checkpoint of its job that an attempt began with.

    `blamed` tells that the attempt failed because of it, probably, and so was not charged.
    """

    job_id: int = c.key_big()
    attempt: int = c.key_small()
    from_attempt: int = c.small()
    from_number: int = c.integer()
    blamed: bool = c.flag(default="false")


class Artifact(SQLModel, table=True):
    """One file that an attempt left in its output folder, or a link, with what it says."""

    __table_args__ = (
        CheckConstraint("bytes >= 0", name="bytes_not_negative"),
        CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name="sha256_form"),
    )

    job_id: int = c.key_big()
    token: int = c.key_big()
    path: str = c.key_string()
    attempt: int = c.small()
    key: str = c.string()
    bytes: int = c.big()
    sha256: str = c.string()
    created_at: datetime = c.moment()
    target: str | None = c.string(null=True)
    modified_at: datetime | None = c.moment(null=True)


class LogChunk(SQLModel, table=True):
    """One piece of an attempt's output; `start` and `bytes` count uncompressed bytes."""

    __tablename__ = "log_chunk"
    __table_args__ = (
        CheckConstraint("bytes > 0 AND start >= 0 AND number >= 0", name="extent_sound"),
        CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name="sha256_form"),
    )

    job_id: int = c.key_big()
    token: int = c.key_big()
    rank: int = c.key_small()
    number: int = c.key_integer()
    attempt: int = c.small()
    key: str = c.string()
    start: int = c.big()
    bytes: int = c.big()
    sha256: str = c.string()
    created_at: datetime = c.moment()


class MetricSpan(SQLModel, table=True):
    """A summary of a hundred lines of a rank's metrics, `span` is their first number / 100.

    `values` has for each key of the first 64, and for `progress`, its count, least, greatest, sum
    and last value, of finite numbers; of all lines, the last may be the text of another. `at` and
    `step` are those of the last line. Thinning leaves it as it is.
    """

    __tablename__ = "metric_span"
    # Rows are updated in place with each batch of lines.
    __table_args__ = (
        Index("metric_span_whole", "job_id", "rank", "token", postgresql_where=text("span = -1")),
        {"postgresql_with": {"fillfactor": 50}},
    )

    job_id: int = c.key_big()
    token: int = c.key_big()
    rank: int = c.key_small()
    # -1 is the whole: all lines of the rank in this attempt.
    span: int = c.key_integer()
    lines: int = c.integer()
    at: datetime = c.moment()
    step: float | None = c.number(null=True)
    values: dict[str, Any] = c.document()


class Metric(SQLModel, table=True):
    """One JSON line of a job's metrics file; partitioned by month."""

    __table_args__ = (
        Index("metric_at", "at"),
        {"postgresql_partition_by": "RANGE (at)"},
    )

    job_id: int = c.key_big()
    token: int = c.key_big()
    rank: int = c.key_small()
    number: int = c.key_integer()
    at: datetime = c.key_moment()
    attempt: int = c.small()
    step: float | None = c.number(null=True)
    values: dict[str, Any] = c.document()
