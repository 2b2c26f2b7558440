"""Look for the lanes of new jobs once a statement instead of once a job."""

from pathlib import Path

from alembic import op

# A trigger needs its function. Each upgrade replaces these with the current ones afterwards.
FUNCTIONS = Path(__file__).parents[3] / "sql" / "functions" / "retention"

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    for name in ("forge_has_lane", "forge_keep_lane"):
        op.execute((FUNCTIONS / f"{name}.sql").read_text(encoding="utf-8"))
    op.execute("ALTER TABLE job DROP CONSTRAINT job_lane")
    # A trigger with the rows of a statement is for one event.
    for event in ("insert", "update"):
        op.execute(
            f"CREATE TRIGGER job_lane_{event} AFTER {event} ON job REFERENCING NEW TABLE AS these"
            " FOR EACH STATEMENT EXECUTE FUNCTION forge_has_lane()"
        )
    op.execute(
        "CREATE TRIGGER job_lane AFTER DELETE ON lane"
        " FOR EACH ROW EXECUTE FUNCTION forge_keep_lane()"
    )
