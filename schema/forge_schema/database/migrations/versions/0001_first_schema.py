"""The first schema. Revisions after it change what it makes; it stays as it is."""

from pathlib import Path

from alembic import op

FIRST_SCHEMA = Path(__file__).parents[1] / "first_schema"
FUNCTIONS = Path(__file__).parents[3] / "sql" / "functions"
TABLES = ("types", "jobs", "places", "history", "stored", "workers", "people")
# A trigger needs its function. Each upgrade replaces these with the current ones afterwards.
CALLED = (
    "months/forge_refuse_change",
    "history/forge_keep_success",
    "held/forge_job_held",
    "held/forge_job_ended",
    "held/forge_job_begun",
)

revision = "0001"
down_revision = None


def upgrade() -> None:
    files = [
        *(FIRST_SCHEMA / f"{name}.sql" for name in TABLES),
        *(FUNCTIONS / f"{name}.sql" for name in CALLED),
        FIRST_SCHEMA / "triggers.sql",
        FIRST_SCHEMA / "rows.sql",
    ]
    for file in files:
        op.execute(file.read_text(encoding="utf-8"))
