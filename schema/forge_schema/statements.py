"""The SQL statements, one file each, read once."""

from functools import cache
from importlib.resources import files


@cache
def statement(name: str) -> str:
    """Return the statement in `queries/<name>.sql`.

    Raises:
        FileNotFoundError: there is no such statement.
    """
    return (files("forge_schema") / "queries" / f"{name}.sql").read_text(encoding="utf-8")


def definitions(folder: str) -> list[str]:
    """Return the SQL definitions in `functions/` or `views/`, ordered by file name."""
    paths = (files("forge_schema") / folder).iterdir()
    return [p.read_text(encoding="utf-8") for p in sorted(paths, key=lambda p: p.name)]


def views() -> list[str]:
    """Return the names of the reporting views, each its file's name."""
    return sorted(p.name.removesuffix(".sql") for p in (files("forge_schema") / "views").iterdir())
