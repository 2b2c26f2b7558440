"""The `forge submit` command that submits the same job as a form."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from forge_schema.model.bundles import WRITTEN
from forge_schema.model.spec import KEYS, Key

UNITS = {"_s": "s", "_mb": "MiB"}
# What the command finds by itself, or has elsewhere: the code and the caller, and what is said of
# another field.
ELSEWHERE = {"command", "config_name", "bundle_digest", "owner", "idempotency_key", "max_nodes"}


def submit_line(asked: Mapping[str, Any]) -> str:
    """Return the command to run in the folder with the code."""
    words = ["forge", "submit", "."]
    if "config_name" in asked:
        words.append(_word("--config", asked["config_name"]))
    for key in _typed():
        place = asked.get(key.table, {}) if key.table else asked
        # Unvalidated JSON may be anything.
        if isinstance(place, Mapping) and place.get(key.field) is not None:
            words += _words(key, place[key.field], asked)
    command = asked.get("command")
    return " ".join([*words, *(["--", shlex.join(command)] if command else [])])


def unsaid(asked: Mapping[str, Any]) -> list[str]:
    """Return the fields that have no command-line option."""
    return sorted(set(asked) - ELSEWHERE - {key.table or key.field for key in _typed()})


def _typed() -> Iterator[Key]:
    tables = {key.table for key in KEYS.values()}
    for key in KEYS.values():
        if key.option.typed and key.name not in {*tables, "idempotency_key"}:
            yield key


def _words(key: Key, value: object, asked: Mapping[str, Any]) -> list[str]:
    if isinstance(value, bool):
        return [key.names[0]] * value
    return [_word(key.names[0], one) for one in _values(key, value, asked)]


def _values(key: Key, value: object, asked: Mapping[str, Any]) -> list[object]:
    if isinstance(value, list):
        return value
    if key.name == "from_checkpoint":
        return [_checkpoint(value)]
    if isinstance(value, Mapping):
        return [f"{name}={one}" for name, one in value.items()]
    # The command writes this list anew.
    if key.name == "requirements" and str(value).startswith(WRITTEN):
        return []
    most = f"..{asked['max_nodes']}" if key.name == "nodes" and "max_nodes" in asked else ""
    return [f"{value}{UNITS.get(key.unit, '')}{most}"]


def _checkpoint(source: object) -> str:
    # As above.
    said = source if isinstance(source, dict) else {}
    place = f":{said['attempt']}.{said.get('number')}" if "attempt" in said else ""
    return f"{said.get('job_id')}{place}"


def _word(option: str, value: object) -> str:
    return f"{option} {shlex.quote(str(value))}"
