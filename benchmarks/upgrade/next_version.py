"""A version after this one, made for the purpose: one more column in a table and in its view."""

import re
import shutil
from pathlib import Path

from chaos.parts.old_version import ROOT, OldVersion
from forge_schema.database.current import HEAD

NUMBER = "9999"
REVISION = f'''"""One more column."""

import sqlalchemy as sa
from alembic import op

revision = "{NUMBER}"
down_revision = "{HEAD}"


def upgrade() -> None:
    op.add_column("job", sa.Column("next", sa.Text(), nullable=True))
'''


def next_version(folder: Path) -> OldVersion:
    """Copy this version, and change the copy."""
    for part in ("schema", "lambda", "worker", "client"):
        shutil.copytree(ROOT / part, folder / part)
    schema = folder / "schema" / "forge_schema"
    added = schema / "database" / "migrations" / "versions" / f"{NUMBER}_next.py"
    added.write_text(REVISION, encoding="utf-8")
    replace(schema / "database" / "current.py", f'HEAD = "{HEAD}"', f'HEAD = "{NUMBER}"')
    view = schema / "sql" / "views" / "jobs" / "job_status.sql"
    replace(view, r"SELECT\n", "SELECT\n    1 AS next,\n")
    return OldVersion(folder)


def replace(file: Path, old: str, new: str) -> None:
    """Replace a text once."""
    text, count = re.subn(old, new, file.read_text(encoding="utf-8"), count=1)
    assert count == 1, f"{file} has no {old!r}"
    file.write_text(text, encoding="utf-8")
