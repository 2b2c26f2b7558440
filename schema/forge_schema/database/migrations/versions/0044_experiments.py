"""The experiment that a job belongs to."""

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0040"


def upgrade() -> None:
    op.add_column("job", sa.Column("experiment", sa.Text(), nullable=True))
    # No job has one yet, so nothing is read for the index but the heap.
    op.create_index(
        "job_experiment",
        "job",
        ["owner", "experiment", "id"],
        unique=False,
        postgresql_where=sa.text("experiment IS NOT NULL"),
    )
