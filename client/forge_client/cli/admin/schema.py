"""`forge schema`: the JSON Schema of forge.toml."""

from forge_client.project import SCHEMA


def schema() -> None:
    """Print the JSON Schema of forge.toml, by which editors complete and check the file."""
    print(SCHEMA.read_text(encoding="utf-8"), end="")  # noqa: T201 - the data
