"""The SDK can do what the command can do, and says it in the same words."""

from __future__ import annotations

import ast
import re
import traceback
from pathlib import Path

import pytest
from forge_client import Client, ClientError, Job, Sweep
from forge_client.cli.commands import PLACES
from forge_client.project.request import Request
from forge_client.sdk.arguments import CALLS, CALLS_OF_A_JOB, in_calls, in_python

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "python.md"
LIBRARY = (
    *(ROOT / "client" / "forge_client" / room for room in ("direct", "http", "project", "results")),
    *(ROOT / "client" / "forge_client" / "sdk", ROOT / "schema" / "forge_schema"),
)
LEFT = re.compile(r"`forge ([a-z][a-z-]*)")
OF_A_MACHINE = {"up", "down", "login", "logout", "db", "backup", "restore", "schema", "mcp"}
HOLDERS = {"client": Client, "job": Job, "sweep": Sweep}
ROW = re.compile(r"^\| (`forge .*?) \| (.*) \|$", re.MULTILINE)


def test_every_command_has_its_counterpart_on_the_page() -> None:
    commands = [name for row in ROW.findall(PAGE.read_text()) for name in _commands(row[0])]
    wanted = "give each command a row in the table of docs/python.md"
    assert sorted(commands) == sorted(PLACES.keys() - OF_A_MACHINE), wanted


def _commands(cell: str) -> list[str]:
    return re.findall(r"`forge ([\w-]+)`", cell)


def test_what_stands_for_a_command_in_an_error_exists() -> None:
    calls = [("client", call.removeprefix("client.")) for call in CALLS.values()]
    calls += [("job", call) for call in CALLS_OF_A_JOB.values()]
    missing = [call for holder, call in calls if not hasattr(HOLDERS[holder], call[:-2])]
    assert missing == []


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("`forge rerun 9` submits it again", "client.job(9).rerun() submits it again"),
        ("did you mean a? `forge team list` lists", "did you mean a? client.teams() lists"),
        ("run `forge login`, or pass --api-key-file", "run `forge login`, or pass `api_key`"),
        ("add --after-ok 7, so that", "add after_ok=7, so that"),
        ("start w with --default-image", "start w with --default-image"),
        ("`createdb --owner=x` makes it", "`createdb --owner=x` makes it"),
    ],
)
def test_a_hint_speaks_of_python(hint: str, said: str) -> None:
    with pytest.raises(ClientError) as caught, in_python():
        raise ClientError("it is so", hint=hint)
    assert caught.value.hint == said


def test_no_hint_of_the_library_is_only_for_commands() -> None:
    hints = [hint for folder in LIBRARY for path in folder.rglob("*.py") for hint in _hints(path)]
    assert len(hints) > 200
    left = [verb for hint in hints for verb in LEFT.findall(in_calls(hint, options=True))]
    wanted = "give the command its call in forge_client/sdk/arguments.py"
    assert {*left} <= OF_A_MACHINE | {"exec"}, wanted


def _hints(path: Path) -> list[str]:
    """Return the hints that a file gives, with 7 for whatever is put in."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    named = [word.value for call in calls for word in call.keywords if word.arg == "hint"]
    return [_text(value) for value in named]


def _text(node: ast.AST) -> str:
    match node:
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(map(_text, node.values))
        case _:
            return "7"


def test_what_the_page_names_exists() -> None:
    named = re.findall(r"\b(client|job|sweep)\.(\w+)\(", PAGE.read_text())
    assert len(named) > 40
    missing = [f"{holder}.{name}" for holder, name in named if not hasattr(HOLDERS[holder], name)]
    assert missing == []


@pytest.mark.parametrize(("wrong", "right"), [("gpu", "gpus"), ("mem", "memory"), ("envs", "env")])
def test_a_wrong_field_is_told_the_right_one(wrong: str, right: str) -> None:
    with pytest.raises(ClientError, match=f"a job has no field '{wrong}'") as caught:
        Request().changed({wrong: 1})
    assert caught.value.hint == f"did you mean {right!r}?"
    # Python's own traceback shows what to do, and nothing of what refused the field.
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.endswith(f"a job has no field '{wrong}'\nhint: did you mean {right!r}?\n")
    assert shown.count("Traceback") == 1
