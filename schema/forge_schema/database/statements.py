"""The SQL statements, one file each, read once; named by their files, whatever the folder."""

from functools import cache
from pathlib import Path

SQL = Path(__file__).parents[1] / "sql"
DEFINITIONS = ("functions", "views")


@cache
def statement(name: str) -> str:
    """Return the statement in `sql/*/<name>.sql`.

    Raises:
        KeyError: there is no such statement.
    """
    return statements()[name].read_text(encoding="utf-8")


@cache
def statements() -> dict[str, Path]:
    """Return the file of each statement, by its name."""
    folders = [folder for folder in SQL.iterdir() if folder.name not in DEFINITIONS]
    return {path.stem: path for folder in folders for path in folder.glob("*.sql")}


def definitions(folder: str) -> list[str]:
    """Return the SQL definitions in `sql/functions/` or `sql/views/`, ordered by file name."""
    return [path.read_text(encoding="utf-8") for path in _below(folder)]


def views() -> list[str]:
    """Return the names of the reporting views, each its file's name."""
    return [path.stem for path in _below("views")]


def _below(folder: str) -> list[Path]:
    return sorted((SQL / folder).rglob("*.sql"), key=lambda path: path.name)
