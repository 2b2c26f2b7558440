"""The newest migration that this version knows, told without Alembic."""

from functools import cache
from importlib.resources import files


@cache
def head() -> str:
    """Return the newest revision; as texts, later ones are greater."""
    folder = files("forge_schema") / "migrations" / "versions"
    names = [path.name for path in folder.iterdir() if path.name.endswith(".py")]
    return max(names).partition("_")[0]
