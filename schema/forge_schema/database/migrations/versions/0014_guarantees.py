"""Guarantee GPUs to queues, owners and teams."""

from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    for table, name in (
        ("queue", "guarantee_not_negative"),
        ("owner_quota", "guarantee_not_negative"),
        ("team", "team_guarantee_not_negative"),
    ):
        op.execute(
            f"ALTER TABLE {table} ADD guaranteed_gpus integer,"
            f" ADD CONSTRAINT {name} CHECK (guaranteed_gpus >= 0) NOT VALID"
        )
        op.execute(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}")
