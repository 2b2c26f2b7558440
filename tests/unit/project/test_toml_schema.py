"""The JSON Schema of forge.toml accepts what `forge submit` accepts."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from forge_client.project.forge_toml import Project
from forge_client.project.schema import text
from jsonschema_rs import Draft7Validator
from pydantic import ValidationError

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"```toml\n(.*?)```", re.DOTALL)
VALIDATOR = Draft7Validator(json.loads(text()))


def examples() -> dict[str, dict[str, Any]]:
    """Return every forge.toml of the documents and the examples, by its place."""
    found = {}
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
            found[f"{page.relative_to(ROOT)}#{number}"] = tomllib.loads(block)
    for path in (ROOT / "examples").rglob("forge.toml"):
        found[str(path.relative_to(ROOT))] = tomllib.loads(path.read_text(encoding="utf-8"))
    return found


EXAMPLES = examples()


def projects() -> list[str]:
    """Return those that are a forge.toml: a page also shows other TOML."""
    return [place for place, said in EXAMPLES.items() if said.keys() & Project.model_fields.keys()]


@pytest.mark.parametrize("place", projects())
def test_every_example_is_valid(place: str) -> None:
    assert list(VALIDATOR.iter_errors(EXAMPLES[place])) == []
    Project.model_validate(EXAMPLES[place])


def test_the_examples_were_found() -> None:
    assert {place.partition("#")[0] for place in projects()} >= {
        "docs/forge-toml.md", "docs/kinds-of-job.md",
    }  # fmt: skip


RIGHT = [
    {"command": "python train.py", "nodes": "2..8", "timeout": "1h30m", "limit": "2G"},
    {"nodes": 4, "delay": 0, "command": ["python", ""], "resources": {"vram": "0"}},
    {"nodes": " 3 ", "delay": 90, "backoff": 1.5, "after": "7,8", "after_ok": [7, "8"]},
    {"from_checkpoint": "7:1.2", "requirements": False, "checkpoint_dir": "./runs/"},
    {"checkpoint": "*.pt"},
    {"checkpoint": ["./**/best.ckpt", "runs/"]},
    {"matrix": {"lr": [0.1, 0.01], "on": [True]}, "resources": {"cpus": 0.5, "memory": "512mib"}},
]
WRONG = [
    {"comand": "x"},
    {"command": 5},
    {"checkpoint": 5},
    {"nodes": "2-8"},
    {"timeout": "two hours"},
    {"timeout": True},
    {"limit": "2 pints"},
    {"after": "seven"},
    {"from_checkpoint": "7:1"},
    {"requirements": ""},
    {"requirements": True},
    {"resources": {"memory": 8}},
    {"resources": {"gpu": 1}},
    {"stall": {"no_progress": "soon"}},
    {"matrix": {"lr": 0.1}},
    {"connection": {"api_key": "fgk_1"}},
    {"repeat": 0},
    {"nodes": "two"},
    {"priority": 1001},
    {"max_failures": -1},
    {"timeout": 0},
    {"timeout": "0s"},
    {"grace": 3601},
    {"checkpoint_interval": "0s"},
    {"stall": {"idle_gpu_percent": 500}},
    {"stall": {"no_progress": "0s"}},
    {"resources": {"memory": "0"}},
]
# The queue refuses them; nobody knows before.
REFUSED_LATER = [
    {"target": "moon"},
    {"launcher": "horovod"},
    {"preempt_signal": "SIGKILL"},
    {"resources": {"accelerator": "tpu"}},
    {"tuning": {"precision": "fp7"}},
    {"env": {"FORGE_X": "1"}},
    {"secrets": ["a b"]},
    {"name": "12"},
    {"nodes": 0},
    {"nodes": "0..3"},
    {"nodes": "1..3"},
    {"checkpoint_dir": "/abs"},
    {"checkpoint_dir": "../up"},
    {"checkpoint": "/abs/*.pt"},
    {"checkpoint": ["../*.pt"]},
    {"command": []},
    {"command": " "},
]


@pytest.mark.parametrize("said", RIGHT)
def test_what_is_right_is_valid(said: dict[str, Any]) -> None:
    assert list(VALIDATOR.iter_errors(said)) == []
    Project.model_validate(said)


@pytest.mark.parametrize("said", WRONG)
def test_what_is_wrong_is_invalid(said: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid(said)
    with pytest.raises(ValidationError):
        Project.model_validate(said)


@pytest.mark.parametrize("said", REFUSED_LATER)
def test_the_queue_s_bounds_are_in_it(said: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid(said)
    Project.model_validate(said)


def test_every_key_says_what_it_is_for_and_words_can_be_completed() -> None:
    whole = json.loads(text())
    tables = {"": whole, **{name.lower(): one for name, one in whole["$defs"].items()}}
    keys = {
        f"{table}.{key}".removeprefix("."): said
        for table, one in tables.items()
        for key, said in one["properties"].items()
    }
    assert [key for key, said in keys.items() if not said.get("description")] == []
    assert keys["resources.accelerator"]["enum"] == ["any", "cpu", "cuda", "rocm", "mps"]
    assert "SIGUSR1" in keys["preempt_signal"]["enum"]
    assert (keys["queue"]["default"], keys["target"]["default"]) == ("default", "auto")
    assert keys["grace"]["default"] == 30
