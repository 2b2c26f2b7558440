"""Every command of `forge`, its arguments and its options."""

from collections.abc import Iterator
from typing import Any

from forge_client.cli.commands import app, children
from forge_client.errors import MEANINGS
from tabular import cell, table
from typer.main import get_command

HEAD = """\
# Commands

Generated from the code. `forge COMMAND --help` prints the same. Options of `forge` itself stand
before the command; most have a variable. Lists are given by repeating an option.
"""


def page() -> str:
    """Return the page about the commands."""
    command = get_command(app)
    codes = table(("code", "meaning"), [(f"{code:d}", text) for code, text in MEANINGS.items()])
    return "\n".join([HEAD, *_section("forge", command), "## Exit codes", "", codes])


def _section(name: str, command: Any) -> Iterator[str]:  # noqa: ANN401 - typer hides its click
    yield f"## {name}\n"
    yield f"{_paragraphs(command.help)}\n"
    params = [param for param in command.params if not getattr(param, "hidden", False)]
    if params:
        yield table(("option", "meaning", "default"), [_row(param) for param in params])
    for child in children(command):
        yield from _section(f"{name} {child.name}", child)


def _row(param: Any) -> tuple[str, str, str]:  # noqa: ANN401 - as above
    names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
    variable = f" Variable: `{param.envvar}`." if param.envvar else ""
    default = param.default
    shown = "" if default in (None, False, (), []) or callable(default) else f"`{default}`"
    return names, cell((param.help or "") + variable), shown


def _paragraphs(text: str | None) -> str:
    return (text or "").replace("\b", "").strip()
