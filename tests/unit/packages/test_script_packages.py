"""Scripts that list their packages themselves, and commands that a project's tool runs."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from forge_client.errors import ClientError
from forge_client.project.environment.sources import source_of
from forge_client.project.environment.uv import Uv
from support.packages import listed, pins, sent, write
from support.wheels import wheel

if TYPE_CHECKING:
    from pathlib import Path

    from forge_client.project.environment.packages import WithPackages


def script(wheels: Path, *packages: str, python: str = ">=3.11") -> str:
    return (
        f"#!/usr/bin/env python3\n# /// script\n# requires-python = '{python}'\n"
        f"# dependencies = {list(packages)}\n#\n# [tool.uv]\n# no-index = true\n"
        f"# find-links = ['{wheels}']\n# ///\nimport inner\n"
    )


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    for version in ("1.0", "2.0"):
        wheel(tmp_path / "wheels", "inner", version)
    return tmp_path / "wheels"


def chosen(whole: WithPackages) -> tuple[list[str], list[str] | None]:
    return pins(whole), whole.requests[0].command


@pytest.mark.parametrize(
    "command",
    [["python", "train.py"], ["train.py"], ["uv", "run", "train.py"], ["python3", "./train.py"]],
)
def test_the_packages_of_the_script_that_runs(
    tmp_path: Path, wheels: Path, command: list[str]
) -> None:
    folder = write(tmp_path / "p", {"train.py": script(wheels, "inner<2", python=">=3.12")})
    whole = sent(folder, command=command)
    assert pins(whole) == ["inner==1.0"]
    assert listed(whole)[0].startswith("# python 3.12 3.13 ")
    assert whole.notes[0].startswith("train.py (listed in the script itself), 1 package locked")
    assert whole.requests[0].command in (["python", "train.py"], ["python3", "./train.py"])
    assert pins(sent(folder, requirements="train.py")) == ["inner==1.0"]


def test_its_lock_is_taken_unless_it_is_older(tmp_path: Path, wheels: Path) -> None:
    folder = write(tmp_path / "p", {"train.py": script(wheels, "inner")})
    write(folder, {"train.py": script(wheels, "inner<2")})
    Uv.here().says("lock", "--script", "train.py", folder=folder)
    assert pins(sent(folder, command=["python", "train.py"])) == ["inner==1.0"]
    assert pins(sent(folder, requirements="train.py.lock")) == ["inner==1.0"]
    # An image changes nothing about a lock.
    assert pins(sent(folder, command=["python", "train.py"], image="i")) == ["inner==1.0"]
    # If a script asks for none, that is the Python that uv found, and all later ones.
    lock = folder / "train.py.lock"
    lock.write_text(lock.read_text().replace(">=3.11", ">=3.13"))
    python = source_of("train.py", folder / "train.py").python
    assert python is not None
    assert python.lowest == "3.13"
    write(folder, {"train.py": script(wheels, "inner>=2")})
    with pytest.raises(ClientError, match=r"train\.py\.lock is older than train\.py") as error:
        sent(folder, command=["python", "train.py"])
    assert "`uv lock --script train.py` updates it" in error.value.hint


def test_a_script_says_where_its_packages_are(tmp_path: Path, wheels: Path) -> None:
    head = "# /// script\n# dependencies = ['inner']\n# [tool.uv.sources]\n"
    index = f"# [[tool.uv.index]]\n# name = 'p'\n# url = '{wheels}'\n# format = 'flat'\n"
    text = f"{head}# inner = {{index = 'p'}}\n{index}# explicit = true\n# ///\n"
    folder = write(tmp_path / "p", {"train.py": text})
    whole = sent(folder, command=["train.py"])
    assert [line.split(" ; ")[0] for line in listed(whole)[1:]] == [
        f"--find-links {wheels}",
        "inner==2.0",
    ]
    assert listed(sent(folder, command=["train.py"], image="i")) == [
        f"--find-links {wheels}",
        "inner",
    ]
    lib = {"lib/pyproject.toml": "[project]\nname = 'inner'\nversion = '1'\n"}
    write(folder, {"train.py": f"{head}# inner = {{path = 'lib'}}\n# ///\n", **lib})
    assert pins(sent(folder, command=["train.py"])) == ["./lib"]
    with pytest.raises(ClientError, match=r"takes inner from \[tool\.uv\.sources\]"):
        sent(folder, command=["train.py"], image="i")


def test_a_list_of_the_folder_comes_first_unless_uv_runs_the_script(
    tmp_path: Path, wheels: Path
) -> None:
    files = {"train.py": script(wheels, "inner"), "requirements.txt": "# none\n"}
    folder = write(tmp_path / "p", files)
    whole = sent(folder, command=["python", "train.py"])
    assert pins(whole) == []
    assert "not used: the packages that train.py lists itself" in whole.notes[0]
    run = sent(folder, command=["uv", "run", "train.py"])
    assert chosen(run) == (["inner==2.0"], ["python", "train.py"])
    assert pins(sent(folder, command=["uv", "run", "python", "train.py"])) == []
    write(folder, {"train.py": "#!/usr/bin/env -S uv run --script\n" + files["train.py"]})
    (folder / "train.py").chmod(0o755)
    assert chosen(sent(folder, command=["./train.py"])) == (["inner==2.0"], ["python", "train.py"])
    (folder / "train.py").rename(folder / "train")
    for _ in range(2):
        for command in (["./train", "-x"], ["uv", "run", "-s", "train", "-x"]):
            made = chosen(sent(folder, command=command))
            assert made == (["inner==2.0"], ["python", "train", "-x"])
        Uv.here().says("lock", "--script", "train", folder=folder)
    # A bare word is a program, whatever file has its name.
    assert sent(folder, command=["train"]).requests[0].command == ["train"]


@pytest.mark.parametrize(
    "block",
    [
        "# dependencies = 'six'\n",
        "# dependencies = [\n",
        "# ///\n# /// script\n# dependencies = []\n",
    ],
)
def test_a_malformed_block_is_refused(tmp_path: Path, block: str) -> None:
    folder = write(tmp_path, {"train.py": f"# /// script\n{block}# ///\n"})
    with pytest.raises(ClientError, match=r"train\.py: .*# /// script"):
        sent(folder, command=["python", "train.py"])


PROJECT = (
    "[project]\nname = 'p'\nversion = '1'\nrequires-python = '>=3.11'\ndependencies = []\n"
    "[project.optional-dependencies]\ntrain = ['inner<2']\n[dependency-groups]\ngpu = ['inner']\n"
    "[tool.pdm.scripts]\nfit = 'python train.py'\nall = {composite = ['fit']}\n"
    "[tool.pixi.tasks]\nfit = {cmd = 'x && y'}\nmore = {cmd = 'x', depends-on = ['fit']}\n"
    "[tool.pixi.feature.test.tasks]\ntest = 'pytest -x'\n"
    "[tool.hatch.envs.default.scripts]\nfit = 'x {args}'\n"
)


@pytest.mark.parametrize(
    ("command", "made"),
    [
        ("uv run python train.py --lr 1", "python train.py --lr 1"),
        ("uv run --locked -q -- train.py", "python train.py"),
        ("uv run --script train.py --lr 1", "python train.py --lr 1"),
        ("uv run -m app.train", "python -m app.train"),
        ("poetry run train.py", "python train.py"),
        ("pdm run python train.py", "python train.py"),
        ("pipenv run python train.py", "python train.py"),
        ("hatch run python train.py", "python train.py"),
        ("pixi run python train.py", "python train.py"),
        ("pdm run fit --lr 1", "python train.py --lr 1"),
        ("pixi run fit", "bash -c 'x && y'"),
        # What needs the tool keeps it.
        ("uv run --with rich python train.py", None),
        ("uv run --isolated python train.py", None),
        ("pdm run all", None),
        ("pixi run fit --lr 1", None),
        ("pixi run more", None),
        ("pixi run test", None),
        ("hatch run fit", None),
        ("hatch run gpu:python train.py", None),
        ("poetry run", None),
        ("uv sync", None),
    ],
)
def test_the_tool_that_would_make_an_environment_is_left_out(
    tmp_path: Path, command: str, made: str | None
) -> None:
    folder = write(tmp_path, {"train.py": "", "requirements.txt": "\n", "pyproject.toml": PROJECT})
    words = command.split()
    whole = sent(folder, command=words)
    assert whole.requests[0].command == (words if made is None else shlex.split(made))
    assert any("is left out" in one for one in whole.notes) == (made is not None)
    # What nothing is installed for stays as it is.
    for other in ({"requirements": False}, {"image": "busybox"}):
        assert sent(folder, command=words, **other).requests[0].command == words


@pytest.mark.parametrize(
    "program", [".venv/bin/python", "./.venv/bin/python", "{}/.venv/bin/python"]
)
def test_a_program_of_an_environment_in_the_folder_is_the_jobs(
    tmp_path: Path, program: str
) -> None:
    folder = write(tmp_path, {"train.py": "", ".venv/pyvenv.cfg": "", "bin/python": ""})
    words = [program.format(tmp_path), "train.py"]
    whole = sent(folder, command=words)
    assert whole.requests[0].command == ["python", "train.py"]
    assert f"{words[0]} is left out: the job has a python of its own" in whole.notes
    assert sent(folder, command=["bin/python"]).requests[0].command == ["bin/python"]


def test_extras_and_groups_of_a_project_by_option_and_by_command(
    tmp_path: Path, wheels: Path
) -> None:
    more = f"[tool.uv]\nno-index = true\nfind-links = ['{wheels}']\n"
    folder = write(tmp_path / "p", {"pyproject.toml": PROJECT + more})
    # Without a lock it is resolved, and with one it is exported.
    for _ in range(2):
        assert pins(sent(folder, extras=["train"])) == ["inner==1.0"]
        assert "inner" in pins(sent(folder, groups=["gpu"]))[0]
        run = ["uv", "run", "--extra", "train", "--group=gpu", "python", "-V"]
        assert chosen(sent(folder, command=run)) == (["inner==1.0"], ["python", "-V"])
        for asked in ({"extras": ["gone"]}, {"groups": ["gone"]}):
            with pytest.raises(ClientError, match="gone"):
                sent(folder, **asked)
        Uv.here().says("lock", folder=folder)
    # The worker that resolves it reads a text: it knows no extras.
    (folder / "uv.lock").unlink()
    assert pins(sent(folder, extras=["train"], image="i")) == ["inner<2"]


@pytest.mark.parametrize("name", ["requirements.txt", "environment.yml", ""])
def test_a_list_without_extras_has_none_to_ask_for(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, {name: "dependencies: []\n"} if name else {})
    if name == "requirements.txt":
        (folder / name).write_text("\n")
    for asked in ({"extras": ["train"]}, {"groups": ["gpu"]}):
        with pytest.raises(ClientError, match=r"has no (extra|group)s, so there is no"):
            sent(folder, **asked)


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("# comment\n\n3.12.1  # for CUDA\n3.11\n", "# python 3.12"),
        ("cpython-3.12.1-linux-x86_64-gnu\n", "# python 3.12"),
        ("cpython@3.12\n", "# python 3.12"),
        ("3.12/envs/mine\n", "# python 3.12"),
        ("3.14rc1\n", "# python 3.14"),
        ("~=3.12.0\n", "# python 3.12"),
        ("system\n", "# any python"),
        ("3\n", "# any python"),
        ("# none\n", "# any python"),
    ],
)
def test_the_python_in_a_file_is_read_as_its_tools_do(tmp_path: Path, text: str, head: str) -> None:
    folder = write(tmp_path, {".python-version": text, "requirements.txt": "\n"})
    assert listed(sent(folder))[0] == head


@pytest.mark.parametrize("text", ["pypy3.10", "3.13t", "graalpy-3.11", "mine"])
def test_an_unknown_python_version_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ClientError, match=r"\.python-version: .* is none of the versions"):
        sent(write(tmp_path, {".python-version": text, "requirements.txt": "\n"}))
