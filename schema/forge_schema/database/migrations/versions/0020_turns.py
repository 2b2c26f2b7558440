"""A cap on how many jobs of a sweep run at once: the others wait for a turn."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    # It has an argument more now, and would stand beside the new one.
    op.execute("DROP FUNCTION IF EXISTS forge_release(bigint[])")
    op.add_column("held", sa.Column("line", sa.Text(), nullable=True))
    op.add_column("held", sa.Column("parallel", sa.SmallInteger(), nullable=True))
    op.create_check_constraint("line_whole", "held", "(line IS NULL) = (parallel IS NULL)")
    op.create_check_constraint("parallel_positive", "held", "parallel >= 1")
    op.create_index(
        "held_line", "held", ["line", "job_id"], postgresql_where=sa.text("line IS NOT NULL")
    )
    op.create_table(
        "turn",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("line", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
        postgresql_with={
            "autovacuum_vacuum_scale_factor": 0,
            "autovacuum_vacuum_threshold": 1000,
            "autovacuum_analyze_scale_factor": 0,
            "autovacuum_analyze_threshold": 10000,
            "autovacuum_vacuum_cost_delay": 0,
        },
    )
    op.create_index("turn_line", "turn", ["line"])
