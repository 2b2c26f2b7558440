"""The SDK can do what the command can do, and says it in the same words."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import pytest
from forge_client import Client, ClientError, Job, Sweep
from forge_client.cli.commands import PLACES
from forge_client.project.request import Request

PAGE = Path(__file__).parents[3] / "docs" / "python.md"
OF_A_MACHINE = {"up", "down", "login", "logout", "db", "backup", "restore", "schema", "mcp"}
HOLDERS = {"client": Client, "job": Job, "sweep": Sweep}
ROW = re.compile(r"^\| (`forge .*?) \| (.*) \|$", re.MULTILINE)


def test_every_command_has_its_counterpart_on_the_page() -> None:
    commands = [name for row in ROW.findall(PAGE.read_text()) for name in _commands(row[0])]
    wanted = "give each command a row in the table of docs/python.md"
    assert sorted(commands) == sorted(PLACES.keys() - OF_A_MACHINE), wanted


def _commands(cell: str) -> list[str]:
    return re.findall(r"`forge ([\w-]+)`", cell)


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
