"""The owners of uploaded bundles and saved images."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "upload",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("created_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name="sha256_form"),
        sa.PrimaryKeyConstraint("owner", "sha256"),
    )
    # Owners who have run a bundle or an image keep the right to run it.
    op.execute(
        "INSERT INTO upload (owner, sha256, created_at)"
        " SELECT job.owner, named.sha256, min(job.submitted_at)"
        " FROM job CROSS JOIN LATERAL"
        " (VALUES (job.bundle_digest), (job.spec ->> 'image_tar')) AS named (sha256)"
        " WHERE named.sha256 ~ '^[0-9a-f]{64}$'"
        " GROUP BY job.owner, named.sha256"
    )
