"""Workers that the other members of gangs could not reach."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    op.add_column("worker", sa.Column("unreached_by", postgresql.ARRAY(sa.BigInteger())))
    op.add_column("worker", sa.Column("gangs_after", postgresql.TIMESTAMP(timezone=True)))
    # All rows have NULL here, so there is nothing to validate.
    op.execute(
        "ALTER TABLE worker ADD CONSTRAINT gangs_after_unreached"
        " CHECK (gangs_after IS NULL OR unreached_by IS NOT NULL) NOT VALID"
    )
    op.execute("ALTER TABLE worker VALIDATE CONSTRAINT gangs_after_unreached")
