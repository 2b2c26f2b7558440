"""Metric lines are summed up by the hundred, and all of a rank's together.

Those that are there stay as they are, since to read them all would stop everybody meanwhile. Their
curves are read line by line.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0045"
down_revision = "0044"


def upgrade() -> None:
    op.create_table(
        "metric_span",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("token", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("rank", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("span", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.Column("at", sa.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("step", sa.Double(), nullable=True),
        sa.Column("values", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "token", "rank", "span"),
        postgresql_with={"fillfactor": 50},
    )
