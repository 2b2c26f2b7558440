"""Jobs that wait for other jobs are held."""

from pathlib import Path

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

DEFINITIONS = Path(__file__).parents[3] / "sql" / "functions" / "held"
KINDS = ("after", "after_ok", "after_any")
# No new value of an enum can be used before this is committed, so one is compared as text.
STATE_HAS_ITS_REASON = (
    "CASE reason WHEN 'succeeded' THEN state = 'succeeded'"
    " WHEN 'cancelled' THEN state = 'cancelled'"
    " ELSE CASE reason::text WHEN 'dependency_failed' THEN state = 'cancelled'"
    " ELSE state IN ('failed', 'dead') END END"
)

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.execute("ALTER TYPE state ADD VALUE 'held' AFTER 'scheduled'")
    op.execute("ALTER TYPE reason ADD VALUE 'dependency_failed' AFTER 'cancelled'")
    op.execute(f"CREATE TYPE dependency_kind AS ENUM {KINDS}")
    _outcomes()
    _held()
    _dependencies()
    _triggers()


def _outcomes() -> None:
    op.drop_constraint("state_has_its_reason", "outcome")
    op.create_check_constraint(
        "state_has_its_reason", "outcome", STATE_HAS_ITS_REASON, postgresql_not_valid=True
    )


def _held() -> None:
    op.create_table(
        "held",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("lane_id", sa.Integer(), nullable=False),
        sa.Column("nice", sa.SmallInteger(), nullable=False),
        sa.Column("attempt", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
        postgresql_with={
            "autovacuum_vacuum_scale_factor": 0,
            "autovacuum_vacuum_threshold": 1000,
            "autovacuum_analyze_scale_factor": 0,
            "autovacuum_analyze_threshold": 10000,
            "autovacuum_vacuum_cost_delay": 0,
        },
    )


def _dependencies() -> None:
    # Nothing has written to this table so far.
    kind = postgresql.ENUM(*KINDS, name="dependency_kind", create_type=False)
    op.add_column("dependency", sa.Column("kind", kind, nullable=False))
    op.add_column("dependency", sa.Column("met", sa.Boolean(), nullable=True))
    op.create_index(
        "dependency_unsettled", "dependency", ["needs_id"], postgresql_where=sa.text("met IS NULL")
    )


def _triggers() -> None:
    for name in ("forge_job_held", "forge_job_ended", "forge_job_begun"):
        op.execute((DEFINITIONS / f"{name}.sql").read_text(encoding="utf-8"))
    for table, rows, function in (
        ("held", "added", "forge_job_held"),
        ("outcome", "ended", "forge_job_ended"),
    ):
        op.execute(
            f"CREATE TRIGGER {table}_release AFTER INSERT ON {table} REFERENCING NEW TABLE AS {rows}"
            f" FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
        )
    op.execute(
        "CREATE TRIGGER lease_release AFTER UPDATE OF started_at ON lease FOR EACH ROW"
        " WHEN (old.started_at IS NULL AND new.started_at IS NOT NULL)"
        " EXECUTE FUNCTION forge_job_begun()"
    )
