"""Checkpoints of every rank of a run, and the steps that programs commit."""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    for name, default in (("rank", "0"), ("nodes", "1")):
        column = sa.Column(name, sa.SmallInteger(), server_default=sa.text(default), nullable=False)
        op.add_column("checkpoint", column)
    op.add_column("checkpoint", sa.Column("follows", sa.Integer(), nullable=True))
    op.add_column("checkpoint", sa.Column("step", sa.BigInteger(), nullable=True))
    # Checked at the end of the upgrade, while others read and write.
    for name, check in (
        ("other_ranks_follow", "(rank = 0) = (follows IS NULL)"),
        ("nodes_positive", "nodes >= 1"),
    ):
        op.execute(f"ALTER TABLE checkpoint ADD CONSTRAINT {name} CHECK ({check}) NOT VALID")
