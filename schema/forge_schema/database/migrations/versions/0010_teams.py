"""Add teams: owners belong to them, and keys may see the jobs of one, or of everyone."""

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.execute("CREATE TABLE team (name text PRIMARY KEY, created_at timestamptz NOT NULL)")
    op.execute("ALTER TABLE owner_quota ADD team text")
    op.execute("ALTER TABLE api_key ADD team text, ADD everyone boolean DEFAULT false NOT NULL")
    for table, name in (("owner_quota", "owner_team"), ("api_key", "key_team")):
        op.execute(
            f"ALTER TABLE {table} ADD CONSTRAINT {name}"
            " FOREIGN KEY (team) REFERENCES team (name) ON DELETE SET NULL NOT VALID"
        )
        op.execute(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}")
