"""Let a notification cover the jobs of a team."""

from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.execute(
        "ALTER TABLE notification ADD team text,"
        " ADD CONSTRAINT notification_of_whom CHECK (team IS NULL OR NOT everyone) NOT VALID"
    )
    op.execute("ALTER TABLE notification VALIDATE CONSTRAINT notification_of_whom")
