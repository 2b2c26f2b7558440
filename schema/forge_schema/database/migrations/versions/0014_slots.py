"""Limits are slots that claims take."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "slot",
        sa.Column("kind", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("n", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("kind", "name", "n"),
        sa.CheckConstraint(
            "kind IN ('queue_jobs', 'queue_gpus', 'owner_jobs', 'owner_gpus')", name="slot_kind"
        ),
        postgresql_with={
            "fillfactor": 50,
            "autovacuum_vacuum_scale_factor": 0,
            "autovacuum_vacuum_threshold": 1000,
            "autovacuum_analyze_scale_factor": 0,
            "autovacuum_analyze_threshold": 10000,
            "autovacuum_vacuum_cost_delay": 0,
        },
    )
    free, taken = sa.text("job_id IS NULL"), sa.text("job_id IS NOT NULL")
    op.create_index("slot_free", "slot", ["kind", "name", "n"], postgresql_where=free)
    op.create_index("slot_taken", "slot", ["job_id"], postgresql_where=taken)
