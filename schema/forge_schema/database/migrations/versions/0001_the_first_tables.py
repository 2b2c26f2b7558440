"""The first tables."""

from pathlib import Path

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

DEFINITIONS = Path(__file__).parents[3] / "sql" / "functions" / "months"

TYPES = {
    "state": ("scheduled", "ready", "running", "succeeded", "failed", "cancelled", "dead"),
    "reason": (
        "succeeded",
        "exit_code",
        "oom",
        "disk_full",
        "timeout",
        "bundle_corrupt",
        "image_missing",
        "start_failed",
        "storage_failed",
        "gpu_fault",
        "worker_lost",
        "preempted",
        "drained",
        "cancelled",
    ),
    "phase": ("claimed", "preparing", "running", "finishing"),
    "asked": ("cancelled", "preempted", "timeout"),
    "worker_kind": ("ephemeral", "persistent"),
    "worker_status": ("connecting", "idle", "busy", "draining", "offline"),
    "command": ("drain", "stop"),
    "target": ("auto", "worker", "local"),
}

revision = "0001"
down_revision = None


def word(name: str) -> postgresql.ENUM:
    return postgresql.ENUM(*TYPES[name], name=name, create_type=False)


def upgrade() -> None:
    op.execute("CREATE SEQUENCE lease_token AS bigint")
    op.execute("CREATE SEQUENCE event_id AS bigint")
    for name, words in TYPES.items():
        listed = ", ".join(f"'{w}'" for w in words)
        op.execute(f"CREATE TYPE {name} AS ENUM ({listed})")
    op.create_table(
        "api_key",
        sa.Column("id", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("hash", postgresql.BYTEA(), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("expires_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("last_used_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("revoked_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.CheckConstraint("role IN ('admin', 'submitter', 'viewer')", name="role_known"),
        sa.CheckConstraint("octet_length(hash) = 32", name="hash_sha256"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "artifact",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("token", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("path", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.SmallInteger(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name="sha256_form"),
        sa.CheckConstraint("bytes >= 0", name="bytes_not_negative"),
        sa.PrimaryKeyConstraint("job_id", "token", "path"),
    )
    op.create_table(
        "attempt",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("rank", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "finished_at", postgresql.TIMESTAMP(timezone=True), autoincrement=False, nullable=False
        ),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("nonce", sa.UUID(), nullable=False),
        sa.Column("worker_id", sa.BigInteger(), nullable=False),
        sa.Column("lane_id", sa.Integer(), nullable=False),
        sa.Column("ready_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("claimed_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("started_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("reason", word("reason"), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column(
            "devices", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
        sa.Column("gpu_seconds", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.Column("energy_j", sa.Double(), nullable=True),
        sa.Column("cost", sa.Double(), nullable=True),
        sa.CheckConstraint("finished_at >= claimed_at", name="finished_after_claimed"),
        sa.CheckConstraint("attempt >= 1", name="counted"),
        sa.PrimaryKeyConstraint("job_id", "attempt", "rank", "finished_at"),
        postgresql_partition_by="RANGE (finished_at)",
    )
    op.create_table(
        "checkpoint",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("token", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.SmallInteger(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.CheckConstraint("bytes >= 0 AND files >= 0", name="sizes_not_negative"),
        sa.PrimaryKeyConstraint("job_id", "token", "number"),
    )
    op.create_table(
        "event",
        sa.Column(
            "id",
            sa.BigInteger(),
            server_default=sa.text("nextval('event_id')"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("at", postgresql.TIMESTAMP(timezone=True), autoincrement=False, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=True),
        sa.Column("worker_id", sa.BigInteger(), nullable=True),
        sa.Column("token", sa.BigInteger(), nullable=True),
        sa.Column("detail", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.PrimaryKeyConstraint("id", "at"),
        postgresql_partition_by="RANGE (at)",
    )
    op.create_index(
        "event_job",
        "event",
        ["job_id"],
        unique=False,
        postgresql_where=sa.text("job_id IS NOT NULL"),
    )
    op.create_table(
        "lease",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("rank", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "token",
            sa.BigInteger(),
            server_default=sa.text("nextval('lease_token')"),
            nullable=False,
        ),
        sa.Column("nonce", sa.UUID(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("worker_id", sa.BigInteger(), nullable=False),
        sa.Column("lane_id", sa.Integer(), nullable=False),
        sa.Column("nice", sa.SmallInteger(), nullable=False),
        sa.Column("attempt", sa.SmallInteger(), nullable=False),
        sa.Column("failures", sa.SmallInteger(), nullable=False),
        sa.Column("losses", sa.SmallInteger(), nullable=False),
        sa.Column("preemptions", sa.SmallInteger(), nullable=False),
        sa.Column("ready_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("claimed_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("started_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("deadline_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("expires_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("phase", word("phase"), server_default=sa.text("'claimed'"), nullable=False),
        sa.Column("progress", sa.Double(), nullable=True),
        sa.Column("metrics", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("asked", word("asked"), nullable=True),
        sa.Column(
            "devices", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
        sa.CheckConstraint("expires_at > claimed_at", name="expires_after_claimed"),
        sa.CheckConstraint(
            "attempt >= 1 AND least(failures, losses, preemptions) >= 0", name="counted"
        ),
        sa.CheckConstraint("progress BETWEEN 0 AND 1", name="progress_is_share"),
        sa.PrimaryKeyConstraint("job_id", "rank"),
        postgresql_with={
            "fillfactor": 50,
            "autovacuum_vacuum_scale_factor": 0,
            "autovacuum_vacuum_threshold": 1000,
            "autovacuum_analyze_scale_factor": 0,
            "autovacuum_analyze_threshold": 10000,
            "autovacuum_vacuum_cost_delay": 0,
        },
    )
    op.create_table(
        "log_chunk",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("token", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("rank", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.SmallInteger(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name="sha256_form"),
        sa.CheckConstraint("bytes > 0 AND start >= 0 AND number >= 0", name="extent_sound"),
        sa.PrimaryKeyConstraint("job_id", "token", "rank", "number"),
    )
    op.create_table(
        "metric",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("token", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("rank", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", postgresql.TIMESTAMP(timezone=True), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.SmallInteger(), nullable=False),
        sa.Column("step", sa.Double(), nullable=True),
        sa.Column("values", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "token", "rank", "number", "at"),
        postgresql_partition_by="RANGE (at)",
    )
    op.create_table(
        "outcome",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("state", word("state"), nullable=False),
        sa.Column("reason", word("reason"), nullable=False),
        sa.Column("attempt", sa.SmallInteger(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=True),
        sa.Column("nonce", sa.UUID(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("finished_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.CheckConstraint(
            "CASE WHEN state = 'cancelled' THEN num_nulls(token, nonce) <> 1 ELSE num_nulls(token, nonce) = 0 END",
            name="token_whole",
        ),
        sa.CheckConstraint(
            "CASE reason WHEN 'succeeded' THEN state = 'succeeded' WHEN 'cancelled' THEN state = 'cancelled' ELSE state IN ('failed', 'dead') END",
            name="state_has_its_reason",
        ),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_table(
        "owner_quota",
        sa.Column("owner", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("max_jobs", sa.Integer(), nullable=True),
        sa.Column("max_gpus", sa.Integer(), nullable=True),
        sa.Column("weight", sa.Double(), server_default=sa.text("1"), nullable=False),
        sa.CheckConstraint("max_jobs >= 0 AND max_gpus >= 0", name="limits_not_negative"),
        sa.CheckConstraint("weight > 0", name="weight_positive"),
        sa.PrimaryKeyConstraint("owner"),
    )
    op.create_table(
        "queue",
        sa.Column("name", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("max_jobs", sa.Integer(), nullable=True),
        sa.Column("max_gpus", sa.Integer(), nullable=True),
        sa.CheckConstraint("max_jobs >= 0 AND max_gpus >= 0", name="limits_not_negative"),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "ready",
        sa.Column("lane_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("nice", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("failures", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("losses", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("preemptions", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("ready_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("lane_id", "nice", "job_id"),
        postgresql_with={
            "autovacuum_vacuum_scale_factor": 0,
            "autovacuum_vacuum_threshold": 1000,
            "autovacuum_analyze_scale_factor": 0,
            "autovacuum_analyze_threshold": 10000,
            "autovacuum_vacuum_cost_delay": 0,
        },
    )
    op.create_table(
        "schedule",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cron", sa.Text(), nullable=False),
        sa.Column("timezone", sa.Text(), server_default=sa.text("'UTC'"), nullable=False),
        sa.Column("spec", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("next_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("owner", "name", name="schedule_name"),
    )
    op.create_table(
        "scheduled",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("lane_id", sa.Integer(), nullable=False),
        sa.Column("nice", sa.SmallInteger(), nullable=False),
        sa.Column("attempt", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("failures", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("losses", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("preemptions", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("run_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
        postgresql_with={
            "autovacuum_vacuum_scale_factor": 0,
            "autovacuum_vacuum_threshold": 1000,
            "autovacuum_analyze_scale_factor": 0,
            "autovacuum_analyze_threshold": 10000,
            "autovacuum_vacuum_cost_delay": 0,
        },
    )
    op.create_index("scheduled_due", "scheduled", ["run_at"], unique=False)
    op.create_table(
        "shape",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("accelerator", sa.Text(), server_default=sa.text("'any'"), nullable=False),
        sa.Column("gpus", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("gpu_model", sa.Text(), server_default=sa.text("'*'"), nullable=False),
        sa.Column("vram_mb", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("cpus", sa.Double(), server_default=sa.text("1"), nullable=False),
        sa.Column("memory_mb", sa.Integer(), server_default=sa.text("1024"), nullable=False),
        sa.Column("disk_mb", sa.Integer(), server_default=sa.text("10240"), nullable=False),
        sa.Column(
            "labels",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("nodes", sa.SmallInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("target", word("target"), server_default=sa.text("'auto'"), nullable=False),
        sa.CheckConstraint("jsonb_typeof(labels) = 'object'", name="labels_object"),
        sa.CheckConstraint("cpus > 0", name="cpus_positive"),
        sa.CheckConstraint("disk_mb > 0", name="disk_positive"),
        sa.CheckConstraint("gpus >= 0 AND vram_mb >= 0", name="devices_not_negative"),
        sa.CheckConstraint("memory_mb > 0", name="memory_positive"),
        sa.CheckConstraint("nodes >= 1", name="nodes_positive"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint(
            "accelerator",
            "gpus",
            "gpu_model",
            "vram_mb",
            "cpus",
            "memory_mb",
            "disk_mb",
            "labels",
            "nodes",
            "target",
            name="shape_distinct",
        ),
    )
    op.create_table(
        "template",
        sa.Column("owner", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("spec", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("updated_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("owner", "name"),
    )
    op.create_table(
        "worker",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("boot_id", sa.UUID(), nullable=False),
        sa.Column(
            "kind", word("worker_kind"), server_default=sa.text("'persistent'"), nullable=False
        ),
        sa.Column(
            "status", word("worker_status"), server_default=sa.text("'connecting'"), nullable=False
        ),
        sa.Column("accelerator", sa.Text(), server_default=sa.text("'cpu'"), nullable=False),
        sa.Column(
            "gpus",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'"),
            nullable=False,
        ),
        sa.Column("cpus", sa.Double(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("disk_mb", sa.Integer(), nullable=False),
        sa.Column(
            "labels",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("local", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("price_per_hour", sa.Double(), nullable=True),
        sa.Column("version", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("token_hash", postgresql.BYTEA(), nullable=True),
        sa.Column("command", word("command"), nullable=True),
        sa.Column("registered_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("connected_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("last_seen_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.CheckConstraint("jsonb_typeof(gpus) = 'array'", name="gpus_array"),
        sa.CheckConstraint("jsonb_typeof(labels) = 'object'", name="labels_object"),
        sa.CheckConstraint("cpus > 0 AND memory_mb > 0", name="capacity_positive"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name", name="worker_name"),
        postgresql_with={"fillfactor": 50},
    )
    op.create_table(
        "lane",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("shape_id", sa.Integer(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.ForeignKeyConstraint(["owner"], ["owner_quota.owner"], name="lane_owner"),
        sa.ForeignKeyConstraint(["queue"], ["queue.name"], name="lane_queue"),
        sa.ForeignKeyConstraint(["shape_id"], ["shape.id"], name="lane_shape"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("shape_id", "queue", "owner", name="lane_distinct"),
    )
    op.create_table(
        "job",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("lane_id", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("nice", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("spec", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("bundle_digest", sa.Text(), nullable=True),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("content_digest", sa.Text(), nullable=True),
        sa.Column("max_failures", sa.SmallInteger(), server_default=sa.text("3"), nullable=False),
        sa.Column("max_losses", sa.SmallInteger(), server_default=sa.text("5"), nullable=False),
        sa.Column(
            "max_preemptions", sa.SmallInteger(), server_default=sa.text("50"), nullable=False
        ),
        sa.Column("backoff_s", sa.Integer(), server_default=sa.text("10"), nullable=False),
        sa.Column("timeout_s", sa.Integer(), nullable=True),
        sa.Column("run_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("submitted_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.CheckConstraint("bundle_digest ~ '^[0-9a-f]{64}$'", name="bundle_digest_sha256"),
        sa.CheckConstraint(
            "(idempotency_key IS NULL) = (content_digest IS NULL)", name="idempotency_whole"
        ),
        sa.CheckConstraint("backoff_s >= 0", name="backoff_not_negative"),
        sa.CheckConstraint(
            "least(max_failures, max_losses, max_preemptions) >= 0", name="budgets_not_negative"
        ),
        sa.CheckConstraint("timeout_s > 0", name="timeout_positive"),
        sa.ForeignKeyConstraint(["lane_id"], ["lane.id"], name="job_lane"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "job_idempotency",
        "job",
        ["owner", "idempotency_key"],
        unique=True,
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.create_table(
        "dependency",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("needs_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.CheckConstraint("job_id <> needs_id", name="no_self_dependency"),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="dependency_job"),
        sa.ForeignKeyConstraint(["needs_id"], ["job.id"], name="dependency_needs"),
        sa.PrimaryKeyConstraint("job_id", "needs_id"),
    )
    for parent in ("attempt", "event", "metric"):
        op.execute(f"CREATE TABLE {parent}_default PARTITION OF {parent} DEFAULT")
    op.execute((DEFINITIONS / "forge_refuse_change.sql").read_text(encoding="utf-8"))
    for trail in ("attempt", "event"):
        op.execute(
            f"CREATE TRIGGER {trail}_append_only BEFORE UPDATE OR DELETE ON {trail}"
            " FOR EACH ROW EXECUTE FUNCTION forge_refuse_change()"
        )
        for table in (trail, f"{trail}_default"):
            op.execute(
                f"CREATE TRIGGER {trail}_no_truncate BEFORE TRUNCATE ON {table}"
                " FOR EACH STATEMENT EXECUTE FUNCTION forge_refuse_change()"
            )
