"""The manual page of `forge`, made of its help."""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from forge_client.cli.commands import app, children
from forge_client.errors import MEANINGS
from typer.main import get_command

NAME = "forge \\- submit training jobs to a Forge queue, watch them, fetch their results"
SEE_ALSO = "The pages of the documentation, and \\fBforge help all\\fR."


def write(folder: Path) -> Path:
    """Write the page, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "forge.1"
    file.write_text("\n".join([*_page(get_command(app)), ""]), encoding="utf-8")
    return file


def _page(command: Any) -> Iterator[str]:  # noqa: ANN401 - typer hides its click
    yield f'.TH FORGE 1 "" "Forge {version("forge-queue")}"'
    yield from (".SH NAME", NAME, ".SH SYNOPSIS", ".B forge", r"[\fIoptions\fR] \fIcommand\fR ...")
    yield from (".SH DESCRIPTION", *_paragraphs(command.help))
    yield from (".SH OPTIONS", *_options(command), ".SH COMMANDS")
    for child in children(command):
        yield from _section(f"forge {child.name}", child)
    yield ".SH EXIT STATUS"
    for code, meaning in MEANINGS.items():
        yield from (".TP", f"{code:d}", _text(meaning))
    yield from (".SH SEE ALSO", SEE_ALSO)


def _section(name: str, command: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    words = [_word(param) for param in command.params if param.param_type_name == "argument"]
    yield f'.SS "{_text(" ".join([name, *words]))}"'
    yield from _paragraphs(command.help)
    yield from _options(command)
    for child in children(command):
        yield from _section(f"{name} {child.name}", child)


def _word(param: Any) -> str:  # noqa: ANN401 - as above
    word = param.name.upper() + ("..." if param.nargs != 1 else "")
    return word if param.required else f"[{word}]"


def _options(command: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    for param in command.params:
        if getattr(param, "hidden", False) or not param.help:
            continue
        is_option = param.param_type_name == "option"
        names = [*param.opts, *param.secondary_opts] if is_option else [param.name.upper()]
        variable = f" Variable: {param.envvar}." if param.envvar else ""
        yield from (".TP", ", ".join(f"\\fB{_text(name)}\\fR" for name in names))
        yield _text(f"{param.help}{variable}")


def _paragraphs(text: str | None) -> Iterator[str]:
    for number, paragraph in enumerate((text or "").replace("\b", "").strip().split("\n\n")):
        if number:
            yield ".PP"
        yield _text(paragraph)


def _text(text: str) -> str:
    """Return text as roff has it; a line that begins with a dot or quote would be a request."""
    flat = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{flat}" if flat.startswith((".", "'")) else flat
