"""The SQL statements, one per file, named by the file without its folder; read once."""

from functools import cache
from pathlib import Path

SQL = Path(__file__).parents[1] / "sql"
DEFINITIONS = ("functions", "views")
# Placeholder for the table in statements that serve several: `thin:metric` replaces it.
TABLE = "measured"


@cache
def statement(name: str) -> str:
    """Return the statement in `sql/*/<name>.sql`; `<name>:<table>` fills in its table.

    Raises:
        KeyError: no file has this name.
    """
    file, _, table = name.partition(":")
    text = statements()[file].read_text(encoding="utf-8")
    return text.replace(TABLE, table) if table else text


@cache
def statements() -> dict[str, Path]:
    """Return the file of each statement by name."""
    folders = [folder for folder in SQL.iterdir() if folder.name not in DEFINITIONS]
    return {path.stem: path for folder in folders for path in folder.glob("*.sql")}


def definitions(folder: str) -> list[str]:
    """Return the SQL definitions in `sql/functions/` or `sql/views/`, ordered by file name."""
    return [path.read_text(encoding="utf-8") for path in _below(folder)]


def views() -> list[str]:
    """Return the names of the reporting views."""
    return [path.stem for path in _below("views")]


def _below(folder: str) -> list[Path]:
    return sorted((SQL / folder).rglob("*.sql"), key=lambda path: path.name)
