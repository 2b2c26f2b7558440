"""A field of a job stands in one table, and in the types that editors read."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from forge_client.cli.commands import _loaded
from forge_schema.model.spec import KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
TABLE = "schema/forge_schema/model/spec"
TYPES = "client/forge_client/sdk/spec.py"
# The form shows a choice of the fields; the others are in its JSON.
FORM = "lambda/forge_functions/dashboard/job_form.py"
NAMES = {name for key in KEYS.values() for name in (key.name, key.field)}
# Some code is about a few fields that belong together; more than these are a list of all.
MOST = 12
SUBMITS = ("submit", "test", "benchmark", "run-handler", "rerun", "sweep run", "schedule add")


def _modules(*folders: str) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            name = str(path.relative_to(ROOT))
            if "/build/" not in name:
                yield name, path.read_text(encoding="utf-8")


def _names(node: ast.AST) -> list[object]:
    """Return the constants of a collection, or the fields of a class."""
    if isinstance(node, ast.ClassDef):
        fields = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
        return [field.id for field in fields if isinstance(field, ast.Name)]
    found = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
    return [one.value for one in found if isinstance(one, ast.Constant)]


@pytest.mark.parametrize("field", ["preempt_signal", "checkpoint_interval", "silent_log"])
def test_a_field_of_a_job_is_in_the_table_the_types_and_its_consumer(field: str) -> None:
    word = re.compile(rf"\b{field}(_s)?\b")
    places = [name for name, text in _modules("schema", "lambda", "client") if word.search(text)]
    assert sorted({TABLE if name.startswith(TABLE) else name for name in places}) == [TYPES, TABLE]
    consumers = [name for name, text in _modules("worker") if word.search(text)]
    assert len(consumers) == 1


def test_no_other_module_lists_the_fields_of_a_job() -> None:
    lists = {
        name
        for name, text in _modules("schema", "lambda", "client")
        if sum(field in text for field in NAMES) > MOST
        for node in ast.walk(ast.parse(text))
        if len(NAMES.intersection(filter(_is_text, _names(node)))) > MOST
    }
    assert lists == {f"{TABLE}/job_fields.py", TYPES, FORM}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


@pytest.mark.parametrize("name", SUBMITS)
def test_every_command_that_submits_has_the_options_of_a_job(name: str) -> None:
    first, *rest = name.split()
    command = _loaded(first)
    for word in rest:
        command = command.commands[word]
    options = {option for param in command.params for option in param.opts}
    assert options >= {"--gpu", "--gpus", "--nodes", "--stall-idle-gpu", "--preempt-signal"}
