"""Which requirements file of a project its jobs name, and what is sent of secrets and tuning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_client.errors import ClientError
from forge_client.project.bundle import scan
from forge_client.project.forge_toml import Project
from forge_client.project.request import Request
from forge_client.project.submission import configured, repeated, with_packages
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
def test_the_file_is_found_unless_it_is_named_or_not_wanted(
    tmp_path: Path, files: dict[str, str], expected: str | None
) -> None:
    (tmp_path / "main.py").touch()
    (tmp_path / "a").touch()
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert chosen(tmp_path) == expected


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"forge.toml": "requirements = 'a.txt'\n"}, "a.txt is not among the project's files"),
        ({"pyproject.toml": "[project\n"}, "pyproject.toml"),
        ({"forge.toml": "checkpoint_dir = './main.py'\n"}, "'main.py' is a file of the project"),
        ({"forge.toml": "checkpoint_dir = 'main.py/x'\n"}, "'main.py' is a file of the project"),
        ({"forge.toml": "checkpoint_dir = 'main'\n"}, "'main' is a link of the project"),
        ({"forge.toml": "checkpoint_dir = 'main/x'\n"}, "'main' is a link of the project"),
        ({"forge.toml": "requirements = true\n"}, "line 1, column 1: requirements: it must"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, files: dict[str, str], said: str) -> None:
    (tmp_path / "main.py").touch()
    (tmp_path / "main").symlink_to("main.py")
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


def test_extras_and_groups_are_chosen_where_a_lock_is_made() -> None:
    asked = Request().changed({"extras": "train,plot", "groups": ["gpu"]})
    assert (asked.extras, asked.groups) == (["train", "plot"], ["gpu"])
    assert not {"extras", "groups"} & asked.fields().keys()
    for more in ({"extras": ["train"]}, {"groups": "gpu"}):
        with pytest.raises(ClientError, match="has the packages that were locked for it"):
            repeated({"command": ["true"]}, more)


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


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ("*.pt", ["*.pt"]),
        (["./*.pt", "runs/", "**"], ["*.pt", "runs", "**"]),
        (("a", "b"), ["a", "b"]),
    ],
)
def test_patterns_of_files_in_the_checkpoint_may_be_one_or_several(
    said: object, sent: list[str]
) -> None:
    assert Request().changed({"checkpoint": said}).fields()["checkpoint"] == sent
    assert "checkpoint" not in Request().changed({"checkpoint": None}).fields()


@pytest.mark.parametrize("said", [".", "./", "", "./."])
def test_the_project_itself_is_no_checkpoint_folder_and_patterns_are_the_way(said: str) -> None:
    with pytest.raises(ClientError, match=r"--checkpoint '\*\.pt'"):
        Request().changed({"checkpoint_dir": said})


POETRY = "[tool.poetry.dependencies]\npython = '^3.11'\n"
OTHERS = {
    "poetry": {"pyproject.toml": f"{POETRY}six = '~1.16'\n"},
    "poetry with a project": {
        "pyproject.toml": f"[project]\nname = 'p'\ndynamic = ['dependencies']\n{POETRY}six = '*'\n"
    },
    "dynamic": {"pyproject.toml": "[project]\nname = 'p'\ndynamic = ['dependencies']\n"},
    "pixi": {"pyproject.toml": "[tool.pixi.dependencies]\nnumpy = '*'\n"},
    "pixi.toml": {"pixi.toml": ""},
    "hatch": {"pyproject.toml": "[tool.hatch.envs.default]\ndependencies = ['six']\n"},
    "hatch.toml": {"hatch.toml": ""},
    "flit": {"pyproject.toml": "[tool.flit.metadata]\nmodule = 'p'\nrequires = ['six']\n"},
    "setup.py": {"setup.py": "setup(install_requires=['six'])\n"},
    "setup.cfg": {"setup.cfg": "[options]\ninstall_requires = file: deps.txt\n"},
    "Pipfile": {"Pipfile": "[packages]\nsix = '*'\n"},
    "pylock.gpu.toml": {"pylock.gpu.toml": ""},
    "uv.lock": {"uv.lock": "version = 1\n"},
    "gpu.conda-lock.yml": {"gpu.conda-lock.yml": "version: 1\n"},
    "Requirements-GPU.txt": {"Requirements-GPU.txt": "six\n"},
    "conda-linux-64.lock": {"conda-linux-64.lock": "@EXPLICIT\n"},
    "requirements.lock": {"requirements.lock": "six==1.17.0\n"},
    "environment-gpu.yml": {"environment-gpu.yml": ""},
    "requirements_train.txt": {"requirements_train.txt": "six\n"},
    "requirements/base.txt": {"requirements/base.txt": "six\n", "requirements/dev.txt": "ruff\n"},
    "requirements-gpu.txt": {"requirements-gpu.txt": "six\n"},
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", OTHERS)
def test_lists_of_other_kinds_are_refused_by_name_and_never_left_to_the_worker(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    write(tmp_path, OTHERS[name])
    with pytest.raises(ClientError, match="which Forge does not install from") as caught:
        chosen(tmp_path)
    file = next(iter(OTHERS[name]))
    assert file in caught.value.message
    assert "--no-install" in caught.value.hint
    # All of these are ways on.
    assert chosen(tmp_path, requirements="other.txt") is None
    with_image = Request().changed({"command": ["true"], "image": "busybox"})
    (said,) = with_packages([with_image], scan(tmp_path)).notes
    assert said.startswith(f"only what the image has: not used: {file}")
    (tmp_path / "forge.toml").write_text("requirements = false\n")
    assert chosen(tmp_path) is None
    (tmp_path / "forge.toml").unlink()
    write(tmp_path, {"a": "", "requirements.txt": "./a\n"})
    assert chosen(tmp_path) == "requirements.txt"


@pytest.mark.parametrize(
    "files",
    [
        {"setup.py": "setup(name='p')\n"},
        {"setup.cfg": "[flake8]\nmax-line-length = 100\n"},
        {"pyproject.toml": POETRY},
        {"pyproject.toml": "[dependency-groups]\ndev = ['ruff']\n"},
        {"pyproject.toml": "[project.optional-dependencies]\nplot = ['six']\n"},
        {"requirements/dev.txt": "ruff\n"},
        {"requirements-dev.txt": "ruff\n"},
    ],
)
def test_what_lists_no_package_of_a_program_stops_nothing(
    tmp_path: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    write(tmp_path, files)
    (said,) = with_packages([Request().changed({"command": ["true"]})], scan(tmp_path)).notes
    assert said.startswith("only what the worker's Python has: ")
    assert (next(iter(files)) in said) == (
        "ruff" in "".join(files.values()) or "plot" in str(files)
    )


@pytest.mark.parametrize(
    "name", ["Pipfile", "setup.py", "hatch.toml", "sub/pixi.toml", "conda-linux-64.lock"]
)
def test_a_list_of_another_kind_that_is_named_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, {name: "install_requires", "forge.toml": f"requirements = '{name}'\n"})
    with pytest.raises(ClientError, match="does not install from"):
        chosen(tmp_path)


def test_a_pyproject_that_is_named_has_to_list_packages(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": WITHOUT, "forge.toml": "requirements = 'pyproject.toml'\n"})
    with pytest.raises(ClientError, match=r"pyproject\.toml, which Forge does not install from"):
        chosen(tmp_path)


@pytest.mark.parametrize(
    ("command", "made"),
    [
        (["train.py", "--lr", "1"], ["python", "train.py", "--lr", "1"]),
        (["run.sh"], ["bash", "run.sh"]),
        (["./train.py"], ["./train.py"]),
        (["other.py"], ["other.py"]),
        (["data"], ["data"]),
        (["python", "train.py"], ["python", "train.py"]),
    ],
)
def test_a_script_of_the_project_in_place_of_a_program_is_run(
    tmp_path: Path, command: list[str], made: list[str]
) -> None:
    for name in ("train.py", "run.sh", "data"):
        (tmp_path / name).touch()
    asked = Request().changed({"command": command, "requirements": False})
    assert with_packages([asked], scan(tmp_path)).requests[0].command == made
    launched = asked.changed({"launcher": "torchrun", "nodes": 2})
    assert with_packages([launched], scan(tmp_path)).requests[0].command == command
