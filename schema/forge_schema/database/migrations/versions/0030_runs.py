"""The members of a run on several machines, and how each of them ended."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    op.execute("ALTER TYPE reason ADD VALUE 'preflight_failed' AFTER 'start_failed'")
    op.execute("ALTER TYPE reason ADD VALUE 'run_ended' AFTER 'drained'")
    op.execute("ALTER TYPE asked ADD VALUE 'ended' AFTER 'timeout'")
    op.execute("ALTER TYPE phase ADD VALUE 'stopping' AFTER 'running'")
    op.add_column("lease", sa.Column("member", postgresql.JSONB(), nullable=True))
    op.add_column(
        "lease", sa.Column("step", sa.SmallInteger(), server_default=sa.text("0"), nullable=False)
    )
    op.add_column("lease", sa.Column("over", postgresql.JSONB(), nullable=True))
