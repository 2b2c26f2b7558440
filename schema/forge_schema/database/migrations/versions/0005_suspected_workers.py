"""Workers on which jobs of different owners fail are suspected, and rest."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.execute(
        "ALTER TABLE worker"
        " ADD COLUMN suspected_for text,"
        " ADD COLUMN judged_at timestamptz,"
        " ADD COLUMN rests smallint NOT NULL DEFAULT 0,"
        " ADD COLUMN rests_until timestamptz"
    )
    op.execute("CREATE INDEX worker_suspected ON worker (id) WHERE suspected_for IS NOT NULL")
