"""Every key of forge.toml, its option and its default."""

from collections.abc import Iterator, Mapping
from typing import Any

from forge_client.cli.options.job_fields import OPTIONS
from forge_client.project import schema
from forge_schema.model.spec import KEYS
from tabular import cell, table

HEAD = """\
# Keys of forge.toml

Generated from the code. [forge.toml](../forge-toml.md) shows them in a file, and says how times and
sizes are written. `forge submit` has the options, and so has every other command that submits jobs.
In Python, the keys are the names of the arguments, also those in tables.
"""


def page() -> str:
    """Return the page about the keys of forge.toml."""
    whole = schema.schema()
    tables = {name: _table(said, whole) for name, said in whole["properties"].items()}
    parts = [HEAD, _rows(whole["properties"])]
    for name, inner in tables.items():
        if inner:
            parts += [f"## {name}\n", f"{whole['properties'][name]['description']}\n", _rows(inner)]
    return "\n".join(parts)


def _table(said: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the keys of a table; {} if a key is none."""
    (reference, *_) = [one["$ref"] for one in said.get("allOf", ()) if "$ref" in one] or [""]
    found: Mapping[str, Any] = whole["$defs"].get(reference.rpartition("/")[2], {})
    return found.get("properties", {}) if reference else {}


def _rows(keys: Mapping[str, Mapping[str, Any]]) -> str:
    rows = list(_row_of_each(keys))
    return table(("key", "meaning", "default", "option"), rows)


def _row_of_each(keys: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str, str, str]]:
    for name, said in keys.items():
        words = ", ".join(f"`{word}`" for word in said.get("enum", ()))
        meaning = f"{said['description']} {words}".strip()
        default = str(said["default"]).lower() if "default" in said else ""
        yield f"`{name}`", cell(meaning), f"`{default}`" if default else "", _option(name)


def _option(name: str) -> str:
    if name not in OPTIONS:
        return ""
    names = KEYS[name].names if name in KEYS else OPTIONS[name].names.split()
    return ", ".join(f"`{one}`" for one in names or [f"--{name}"])
