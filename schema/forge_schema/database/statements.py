"""The SQL statements, one file each, read once; named by their files, whatever the folder."""

from functools import cache
from pathlib import Path

SQL = Path(__file__).parents[1] / "sql"
DEFINITIONS = ("functions", "views")
# A statement that serves several tables alike calls the table this; `thin:metric` puts one in.
TABLE = "measured"


@cache
def statement(name: str) -> str:
    """Return the statement in `sql/*/<name>.sql`, for one table where it is `<name>:<table>`.

    Raises:
        KeyError: no file has this name.
    """
    file, _, table = name.partition(":")
    text = statements()[file].read_text(encoding="utf-8")
    return text.replace(TABLE, table) if table else text


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
