"""Remember where a queue keeps its objects."""

from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.execute("ALTER TABLE identity ADD store text")
