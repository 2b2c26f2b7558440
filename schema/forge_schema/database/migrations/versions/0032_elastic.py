"""Gangs that run on a varying number of machines: who has been idle for long, and who grows."""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    # They have other parameters or columns now.
    op.execute("DROP FUNCTION IF EXISTS forge_limits_of(integer)")
    op.execute("DROP FUNCTION IF EXISTS forge_take_slots(integer, bigint)")
    op.execute("DROP FUNCTION IF EXISTS forge_may_spend(integer, integer)")
    op.execute("DROP FUNCTION IF EXISTS forge_waiting_gangs(jsonb, integer, integer[])")
    op.execute("DROP FUNCTION IF EXISTS forge_draftable(integer, text, bigint, integer)")
    op.execute("DROP FUNCTION IF EXISTS forge_offers(integer, text, bigint, smallint, integer[])")
    op.add_column("idle", sa.Column("since", sa.TIMESTAMP(timezone=True), nullable=True))
    op.add_column("forming", sa.Column("grows", sa.SmallInteger(), nullable=True))
    op.create_check_constraint("grows_beyond_least", "forming", "grows > 2")
