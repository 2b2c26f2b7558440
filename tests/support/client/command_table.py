"""Writes the table of commands that `forge` reads when typer would take too long.

`PYTHONPATH=tests python -m support.client.command_table` brings it up to date.
"""

from __future__ import annotations

import json
import re
from inspect import get_annotations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args, get_origin

import typer
from forge_client.cli.commands import app
from forge_client.cli.options import names
from forge_client.cli.quick import arguments, completion
from forge_client.project import BOUNDS
from forge_client.project.forge_toml import Project
from forge_client.project.request import Request
from forge_client.project.written import READERS
from forge_schema.model.spec import KEYS, Key
from pydantic import TypeAdapter
from typer.main import get_command
from typer.rich_utils import rich_render_text
from typer.testing import CliRunner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

Click: TypeAlias = Any
"""A command, its context, a parameter or a function of one: typer hides which click it is."""

PLACE = Path(arguments.__file__).with_name("commands.json")
# Wide enough for the longest line of the help.
WIDE = 400
FRAME = re.compile(r"╭─ (.+?) ─+╮$")
COMPLETES = {names.jobs: "jobs", completion.states: "states", completion.terms: "terms"}
PLAIN: dict[type, str] = {kind: kind.__name__ for kind in (int, str, float, bool, list)}
TEXTS = (list[str], dict[str, str])
# Of a parameter that only typer can complete.
OTHER = "other"


def text() -> str:
    """Return the table, a command a line."""
    command: Click = get_command(app)
    context = typer.Context(command, info_name="forge", help_option_names=["-h", "--help"])
    made = _command(command, context)
    commands = made.pop("commands")
    made = {**made, **_help(), "keys": dict(_keys())}
    lines = [f"{json.dumps(name)}: {_json(value)}" for name, value in made.items()]
    listed = ",\n".join(f"  {json.dumps(n)}: {_json(one)}" for n, one in commands.items())
    return "{\n" + ",\n".join([*lines, f'"commands": {{\n{listed}\n}}']) + "\n}\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _command(command: Click, context: Click) -> dict[str, Any]:
    found: dict[str, Any] = {
        "help": rich_render_text(command.get_short_help_str()),
        "parameters": [_parameter(one) for one in command.get_params(context) if not _hidden(one)],
    }
    if hasattr(command, "commands"):
        named = ((name, command.get_command(context, name)) for name in command.commands)
        found["commands"] = {
            name: _command(one, typer.Context(one, info_name=name, parent=context))
            for name, one in named
            if not one.hidden
        }
    return found


def _hidden(one: Click) -> bool:
    return bool(getattr(one, "hidden", False))


def _parameter(one: Click) -> dict[str, Any]:
    is_option = one.param_type_name == "option"
    found = {
        "name": one.name,
        "opts": _in_order([*one.opts, *one.secondary_opts]) if is_option else None,
        "off": one.secondary_opts,
        "flag": is_option and one.is_flag,
        "many": one.nargs == -1 or one.multiple,
        "choices": [getattr(word, "value", word) for word in one.type_descriptor.choices or ()],
        "completes": _completes(one),
        "help": rich_render_text(one.help) if is_option and one.help else None,
        "variable": one.envvar,
    }
    return {name: value for name, value in found.items() if value}


def _keys() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the keys of forge.toml that need no model to be read, with what the queue asks."""
    own = get_annotations(Request) | get_annotations(Project)
    for name, field in Project.model_fields.items():
        if name not in KEYS and (kind := _own_kind(name, field)):
            yield name, {"kind": kind}
    for name, key in KEYS.items():
        is_own = name in own
        kind = _own_kind(name, Project.model_fields[name]) if is_own else PLAIN.get(key.kind)
        if kind:
            table = {"table": key.table} if key.table else {}
            yield name, {"kind": kind, "field": key.field, **table, **_bounds(key)}


def _own_kind(name: str, field: FieldInfo) -> str | None:
    """Return the type of what people write in a form of its own, if it needs no model."""
    hint: Any = field.annotation
    if name not in READERS and hint not in TEXTS:
        return None
    if type(None) in get_args(hint):
        hint = get_args(hint)[0]
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return str((get_origin(hint) or hint).__name__)


def _bounds(key: Key) -> dict[str, float]:
    """Return the bounds of a number in the queue's form, which has one already as a range."""
    if key.kind not in {int, float} or key.name in READERS:
        return {}
    schema = TypeAdapter(key.hint).json_schema()
    forms = (schema, *schema.get("anyOf", ()))
    return {name: form[name] for form in forms for name in BOUNDS if name in form}


def _in_order(options: list[str]) -> list[str]:
    # Those of the help are in none: click keeps them in a set.
    return sorted(options, reverse=True) if "--help" in options else options


def _completes(one: Click) -> str | None:
    custom = one._custom_shell_complete
    if custom is None:
        return OTHER if one.type_descriptor.is_file else None
    return next((COMPLETES[one] for one in _inside(custom) if one in COMPLETES), OTHER)


def _inside(function: Click) -> Iterator[Click]:
    """Yield a function, and those that it wraps."""
    yield function
    for cell in getattr(function, "__closure__", None) or ():
        if callable(cell.cell_contents):
            yield from _inside(cell.cell_contents)


def _help() -> dict[str, Any]:
    """Return the help of the whole command: lines, and boxes of what is fixed and what wraps."""
    columns = {"COLUMNS": str(WIDE)}
    said = CliRunner().invoke(app, ["--help"], prog_name="forge", env=columns).output
    before: list[str] = []
    boxes: list[dict[str, Any]] = []
    after: list[str] = []
    for line in said.splitlines():
        if frame := FRAME.match(line):
            boxes.append({"title": frame[1], "rows": []})
        elif line.startswith("│"):
            boxes[-1]["rows"].append(line.strip("│")[1:].rstrip())
        elif not line.startswith("╰"):
            (after if boxes else before).append(line.strip())
    return {"before": before, "boxes": [_box(**one) for one in boxes], "after": after[:-1]}


def _box(title: str, rows: list[str]) -> dict[str, Any]:
    # The last column begins where that of the widest of the others has ended, in all rows.
    found = (re.match(r"\S+( +-\w)?( +<\w+>)? +", row) for row in rows)
    at = max(match.end() for match in found if match)
    shown = [[row[:at].rstrip(), *_pieces(row[at:])] for row in rows]
    return {"title": title, "at": at, "rows": shown}


def _pieces(said: str) -> Iterator[str]:
    """Yield what a row says, and the variable, which is never broken."""
    found = re.fullmatch(r"(.*?)( \[env var: \w+\])?", said)
    assert found
    yield from (one.strip() for one in found.groups() if one)


if __name__ == "__main__":
    PLACE.write_text(text(), encoding="utf-8")
