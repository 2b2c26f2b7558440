"""Let queues have running jobs leave for waiting ones of a higher priority."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.execute(
        "ALTER TABLE queue ADD preemption text DEFAULT 'never' NOT NULL,"
        " ADD preempts_after_s integer DEFAULT 60 NOT NULL,"
        " ADD most_preempted integer DEFAULT 4 NOT NULL"
    )
    op.execute(
        "ALTER TABLE queue"
        " ADD CONSTRAINT preemption_known"
        " CHECK (preemption IN ('never', 'higher-priority')) NOT VALID,"
        " ADD CONSTRAINT preemption_bounds"
        " CHECK (preempts_after_s >= 0 AND most_preempted >= 1) NOT VALID"
    )
    for name in ("preemption_known", "preemption_bounds"):
        op.execute(f"ALTER TABLE queue VALIDATE CONSTRAINT {name}")
