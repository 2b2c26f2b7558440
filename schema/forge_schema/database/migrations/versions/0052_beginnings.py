"""What each attempt began with, and which checkpoints later attempts pass over."""

import sqlalchemy as sa
from alembic import op

revision = "0052"
down_revision = "0051"


def upgrade() -> None:
    for name in ("killed", "trusted"):
        told = sa.text("false")
        op.add_column(
            "checkpoint", sa.Column(name, sa.Boolean(), server_default=told, nullable=False)
        )
    op.add_column("checkpoint", sa.Column("passed_over", sa.SmallInteger(), nullable=True))
    op.create_table(
        "beginning",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("from_attempt", sa.SmallInteger(), nullable=False),
        sa.Column("from_number", sa.Integer(), nullable=False),
        sa.Column("blamed", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "attempt"),
    )
