"""Who submitted a job is in the job's own row, no longer in an event beside it."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.add_column("job", sa.Column("submitted_by", sa.Text(), nullable=True))
