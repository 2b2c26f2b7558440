"""Which requirements file of a project its jobs name, and what is sent of secrets and tuning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_client.errors import ClientError
from forge_client.project.bundle import scan
from forge_client.project.forge_toml import Project
from forge_client.project.request import Request
from forge_client.project.submission import configured, with_packages
from forge_schema.model.job import Template

if TYPE_CHECKING:
    from pathlib import Path

WITH = "[project]\nname = 'p'\ndependencies = ['numpy']\n"
WITHOUT = "[project]\nname = 'p'\n[tool.ruff]\n"


def chosen(folder: Path, **below: object) -> object:
    """Return what a job of the folder would be sent with."""
    request = Project.read(folder).request().changed({"command": ["true"]})
    (whole,) = with_packages([request], scan(folder), below).requests
    return whole.fields().get("requirements")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"pyproject.toml": WITHOUT}, None),
        ({"pyproject.toml": WITH}, "pyproject.toml"),
        ({"pyproject.toml": WITH, "requirements.txt": ""}, "pyproject.toml"),
        ({"pyproject.toml": WITHOUT, "requirements.txt": "./a"}, "requirements.txt"),
        ({"requirements.txt": "", ".forgeignore": "requirements.txt\n"}, None),
        ({"requirements.txt": "", "forge.toml": "requirements = false\n"}, None),
        ({"requirements.txt": "", "forge.toml": "handler = 'h'\nkind = 'custom'\n"}, None),
        (
            {"requirements.txt": "", "a.txt": "./a", "forge.toml": "requirements = 'a.txt'\n"},
            "a.txt",
        ),
    ],
)
def test_the_file_is_found_by_itself_unless_it_is_named_or_not_wanted(
    tmp_path: Path, files: dict[str, str], expected: str | None
) -> None:
    (tmp_path / "main.py").touch()
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert chosen(tmp_path) == expected


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"forge.toml": "requirements = 'a.txt'\n"}, "a.txt is not in the bundle"),
        ({"pyproject.toml": "[project\n"}, "pyproject.toml"),
        ({"forge.toml": "checkpoint_dir = './main.py'\n"}, "'main.py' is a file of the project"),
        ({"forge.toml": "requirements = true\n"}, "line 1, column 1: requirements: it must"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, files: dict[str, str], said: str) -> None:
    (tmp_path / "main.py").touch()
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ClientError, match=said):
        chosen(tmp_path)


def test_a_kept_config_has_its_say(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").touch()
    assert chosen(tmp_path) == ".forge-lock.txt"
    assert chosen(tmp_path, requirements="other.txt") is None
    kept = Template(
        name="c",
        spec={"command": ["true"], "requirements": "other.txt"},
        updated_at="2026-01-01T00:00:00Z",  # type: ignore[arg-type]  # as a server says it
    )
    off = Request(requirements=False)
    assert configured(off, kept, owner=None, folder=tmp_path)["requirements"] is None


def test_secrets_and_tuning_are_added_to(tmp_path: Path) -> None:
    text = "secrets = ['A', 'B']\n[tuning]\nprecision = 'bf16'\nstreams = 2\n"
    (tmp_path / "forge.toml").write_text(text, encoding="utf-8")
    base = Project.read(tmp_path).request()
    fields = base.changed({"secrets": ["B", "C"], "streams": 3, "objective": "latency"}).fields()
    assert fields["secrets"] == ["A", "B", "C"]
    assert fields["tuning"] == {"precision": "bf16", "streams": 3, "objective": "latency"}
    assert base.changed({"secrets": None}).fields()["secrets"] == ["A", "B"]


@pytest.mark.parametrize("said", ["runs", "./runs", "runs/"])
def test_the_checkpoint_folder_is_named_as_a_shell_completes_it(said: str) -> None:
    assert Request().changed({"checkpoint_dir": said}).fields()["checkpoint_dir"] == "runs"
