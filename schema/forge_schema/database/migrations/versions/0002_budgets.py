"""Add budgets of a month."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute(
        "ALTER TABLE owner_quota ADD gpu_hours_per_month float8, ADD cost_per_month float8,"
        " ADD when_spent text DEFAULT 'hold' NOT NULL"
    )
    op.execute(
        "ALTER TABLE owner_quota"
        " ADD CONSTRAINT budgets_not_negative"
        " CHECK (gpu_hours_per_month >= 0 AND cost_per_month >= 0) NOT VALID,"
        " ADD CONSTRAINT when_spent_known"
        " CHECK (when_spent IN ('warn', 'hold', 'preempt')) NOT VALID"
    )
    for name in ("budgets_not_negative", "when_spent_known"):
        op.execute(f"ALTER TABLE owner_quota VALIDATE CONSTRAINT {name}")
    op.execute(
        "CREATE TABLE spending ("
        " owner text PRIMARY KEY,"
        " settled_at timestamptz NOT NULL,"
        " settled_gpu_hours float8 NOT NULL,"
        " settled_cost float8 NOT NULL,"
        " gpu_hours float8 NOT NULL,"
        " cost float8 NOT NULL,"
        " spent_at timestamptz)"
    )
