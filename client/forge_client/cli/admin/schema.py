"""`forge schema`: the JSON Schema of forge.toml."""

from forge_client.project.schema import text


def schema() -> None:
    """Print the JSON Schema of forge.toml, by which editors complete and check the file."""
    print(text(), end="")  # noqa: T201 - the data
