"""Add limits and budgets of teams."""

from alembic import op

revision = "0011"
down_revision = "0010"
KINDS = "'queue_jobs', 'queue_gpus', 'owner_jobs', 'owner_gpus', 'team_jobs', 'team_gpus'"


def upgrade() -> None:
    op.execute(
        "ALTER TABLE team ADD max_jobs integer, ADD max_gpus integer,"
        " ADD gpu_hours_per_month float8, ADD cost_per_month float8,"
        " ADD when_spent text DEFAULT 'hold' NOT NULL, ADD spent_at timestamptz,"
        " ADD CONSTRAINT team_limits_not_negative CHECK (max_jobs >= 0 AND max_gpus >= 0),"
        " ADD CONSTRAINT team_budgets_not_negative"
        " CHECK (gpu_hours_per_month >= 0 AND cost_per_month >= 0),"
        " ADD CONSTRAINT team_when_spent_known CHECK (when_spent IN ('warn', 'hold', 'preempt'))"
    )
    op.execute(
        "ALTER TABLE slot DROP CONSTRAINT slot_kind,"
        f" ADD CONSTRAINT slot_kind CHECK (kind IN ({KINDS})) NOT VALID"
    )
    op.execute("ALTER TABLE slot VALIDATE CONSTRAINT slot_kind")
