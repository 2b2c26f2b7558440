"""Every `forge` command line in a document names commands and options that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forge_client.cli.commands import app
from typer.main import get_command

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
FOLDERS = ("docs", "examples", "infra", "benchmarks")
BLOCK = re.compile(r"^ *```\w*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
TYPED = re.compile(r"^ *(?:\$ )?(?:\w+=\S+ )*(?:\S*/bin/)?(forge [^#\n]*)", re.MULTILINE)
INLINE = re.compile(r"`(forge [^`]+)`")
# What a shell reads after a command; the rest of its line is not forge's.
NEXT = re.compile(r" [|;&>]")
HELP = {"-h", "--help"}
FORGE = get_command(app)
VERB = re.compile(r"[a-z][a-z-]*")


def test_every_command_in_a_document_exists() -> None:
    lines = [(path, line) for path in _documents() for line in _lines(path.read_text("utf-8"))]
    assert len(lines) > 500
    assert [(str(path), line) for path, line in lines if _fault(_words(line))] == []


def test_a_command_or_an_option_that_does_not_exist_is_found() -> None:
    assert _fault(["forge", "--url", "x", "keys", "create"]) == "keys"
    assert _fault(["forge", "key", "make", "--owner", "ann"]) == "make"
    assert _fault(["forge", "benchmark", ".", "--delays", "1h"]) == "--delays"
    assert _fault(["forge", "submit", ".", "--", "python", "--delays"]) is None


def _documents() -> list[Path]:
    # The changelog names what earlier releases had.
    below = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md")]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *below]


def _lines(text: str) -> Iterator[str]:
    for block in BLOCK.findall(text):
        yield from TYPED.findall(re.sub(r"\\\n\s*", " ", block))
    yield from (" ".join(line.split()) for line in INLINE.findall(BLOCK.sub("", text)))


def _words(line: str) -> list[str]:
    line = NEXT.split(line)[0]
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def _fault(words: list[str]) -> str | None:
    """Return the word that names no command or no option; None if all do."""
    command: Any = FORGE
    left = iter(words[1:])
    for word in left:
        if word == "--":
            return None
        if word in HELP:
            continue
        if word.startswith("-"):
            name, sign, _ = word.partition("=")
            option = _options(command).get(name)
            if option is None:
                return name
            if not (sign or option.is_flag):
                next(left, None)
        elif hasattr(command, "commands"):
            if not VERB.fullmatch(word):
                return None  # a placeholder
            command = command.get_command(None, word)
            if command is None:
                return word
    return None


def _options(command: Any) -> dict[str, Any]:  # noqa: ANN401 - typer hides which click it is
    return {name: one for one in command.params for name in [*one.opts, *one.secondary_opts]}
