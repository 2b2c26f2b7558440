"""Where a project's packages are taken from, and the lock that is made of them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from forge_client.errors import ClientError
from forge_client.project.environment import active, locks
from forge_client.project.environment.active import active_environment
from forge_client.project.environment.locks import Lock
from forge_client.project.environment.uv import NotLocked, Uv
from support import trees
from support.packages import listed, sent
from support.wheels import wheel

if TYPE_CHECKING:
    from pathlib import Path

DIGEST = f"sha256:{'0' * 64}"
POETRY = f"""
[[package]]
name = "wanted"
version = "1.0"
optional = false
groups = ["main"]
markers = "sys_platform == 'linux'"
files = [{{file = "wanted-1.0.whl", hash = "{DIGEST}"}}]

[[package]]
name = "for-tests"
version = "2.0"
optional = false
groups = ["dev"]
files = [{{file = "for_tests-2.0.whl", hash = "{DIGEST}"}}]

[[package]]
name = "of-an-extra"
version = "3.0"
optional = true
groups = ["main"]
files = []
"""
CONDA = """
dependencies:
  - python=3.12
  - conda-forge::numpy=1.26
  - pytorch ==2.4.1
  - scipy=1.14.0=py312h0
  - pandas>=2,<3
  - _libgcc_mutex=0.1=main
  - openssl
  - pip
  - pip:
      - tabulate==0.9
"""


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the locks."""
    folder = tmp_path / "locks"
    monkeypatch.setattr(locks, "locks", lambda: folder)
    return folder


def project(root: Path, **files: str) -> Path:
    folder = root / "p"
    folder.mkdir()
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text, encoding="utf-8")
    return folder


def test_a_list_is_locked_with_all_that_it_requires_and_stays_so(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheel(wheels, "inner", "1.0")
    wheel(wheels, "outer", "1.0", ["inner"])
    text = f"--no-index\n--find-links {wheels}\nouter\n"
    folder = project(tmp_path, requirements_txt=text)
    whole = sent(folder)
    lines = listed(whole)
    assert [line.partition(" ")[0] for line in lines[1:]] == [
        *("--no-index", "--find-links", "inner==1.0", "outer==1.0"),
    ]
    assert "--hash=sha256:" in lines[-1]
    assert whole.notes == ("requirements.txt (found in the folder), 2 packages locked",)
    shown = whole.shown({"requirements": whole.requests[0].requirements})["environment"]
    assert (shown["source"], shown["packages"], len(shown["lock"])) == ("requirements.txt", 2, 64)
    # A job that is submitted after a release sees the same packages.
    wheel(wheels, "outer", "2.0", ["inner"])
    assert listed(sent(folder)) == lines
    (folder / "requirements.txt").write_text(f"{text}inner\n", encoding="utf-8")
    assert any(line.startswith("outer==2.0") for line in listed(sent(folder)))


def test_the_digests_that_a_list_names_are_in_its_lock(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    made = hashlib.sha256(wheel(wheels, "inner", "1.0").read_bytes()).hexdigest()
    head = f"--no-index\n--find-links {wheels}\n"
    own = f"--hash=sha256:{made} --hash={DIGEST}"
    folder = project(tmp_path, requirements_txt=f"{head}inner==1.0 {own}\n")
    assert listed(sent(folder))[-1].split()[-2:] == own.split()
    (folder / "requirements.txt").write_text(f"{head}Inner==1.0 \\\n  --hash={DIGEST} # mine\n")
    with pytest.raises(ClientError, match=r"names digests of inner==1\.0 that no file"):
        sent(folder)


def test_an_include_may_be_indented(tmp_path: Path) -> None:
    for version in ("1.0", "2.0"):
        wheel(tmp_path / "wheels", "inner", version)
    folder = project(tmp_path, requirements_txt="--no-index\n  -r more.txt\n")
    for asked, version in (("inner", "2.0"), ("inner<2", "1.0")):
        (folder / "more.txt").write_text(f"\t--find-links {tmp_path}/wheels\n{asked}\n")
        lines = listed(sent(folder))
        assert lines[2] == f"--find-links {tmp_path}/wheels"
        assert lines[3].startswith(f"inner=={version} ")


@pytest.mark.parametrize("line", ["./lib", "-e .", "-f wheels", "a.whl", "lib @ file:./lib"])
def test_a_list_with_files_of_the_project_is_left_to_the_worker(tmp_path: Path, line: str) -> None:
    folder = project(tmp_path, requirements_txt=f"{line}\n", a_whl="", lib="", wheels="")
    whole = sent(folder)
    assert whole.requests[0].requirements == "requirements.txt"
    assert "not locked: it names files of the project" in whole.notes[0]


def test_without_uv_a_list_is_sent_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> Uv:
        raise NotLocked("uv is not installed here: pip install uv")

    monkeypatch.setattr(Uv, "here", absent)
    whole = sent(project(tmp_path, requirements_txt="numpy\n"))
    assert whole.requests[0].requirements == "requirements.txt"
    assert "not locked: uv is not installed here: pip install uv" in whole.notes[0]


def test_packages_for_other_systems_are_not_counted() -> None:
    lines = (
        *("# python 3.11", "a==1", "b==1 ; sys_platform == 'win32' --hash=x"),
        *("c==1 ; os_name == 'nt' or python_version < '3.12'", "d==1 ; sys_platform != 'win32'"),
        "e==1 ; python_version >= '3.11' and platform_system == 'Darwin'",
    )
    assert Lock("\n".join(lines)).packages == 3


def test_names_that_no_index_has_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_words: object, **_given: object) -> str:
        raise NotLocked("uv: Because tqqqdm was not found in the package registry and you require")

    monkeypatch.setattr(Uv, "says", refuses)
    assert sent(project(tmp_path, requirements_txt="tqqqdm\n")).absent == ("tqqqdm",)


def test_an_image_may_have_what_a_list_names(tmp_path: Path) -> None:
    folder = project(tmp_path, requirements_txt="numpy\n")
    assert sent(folder, image="i").requests[0].requirements == "requirements.txt"
    (folder / "poetry.lock").write_text(POETRY, encoding="utf-8")
    assert sent(folder, image="i").requests[0].requirements == ".forge-lock.txt"


def test_a_list_beside_the_script_or_above_the_folder_is_told_of(tmp_path: Path) -> None:
    folder = project(tmp_path)
    trees.write(folder, dict.fromkeys((".git/HEAD", "b/a.py", "b/requirements.txt"), b""))
    command = ["python", "b/a.py"]
    assert (
        sent(folder, command=command)
        .notes[0]
        .endswith("; --requirements b/requirements.txt takes it")
    )
    trees.write(folder, {"c/requirements.txt": b"", "c/d/e.py": b"", "setup.cfg": b"[flake8]\n"})
    assert (
        sent(folder, command=command)
        .notes[0]
        .endswith("; --requirements b/requirements.txt takes it")
    )
    assert "takes it" not in sent(folder, command=["make"]).notes[0]
    below = folder / "c" / "d"
    assert sent(below).notes[0].endswith("; ../requirements.txt is outside it: submit from there")
    assert "outside" not in sent(folder / "b" / "..").notes[0]


def test_uv_lock_is_what_uv_exports_unless_it_is_out_of_date(tmp_path: Path) -> None:
    for name in ("wanted", "for_tests"):
        wheel(tmp_path / "wheels", name, "1.0")
    toml = (
        "[project]\nname = 'p'\nversion = '1'\nrequires-python = '>=3.11'\n"
        "dependencies = ['wanted']\n[dependency-groups]\ndev = ['for_tests']\n"
        f"[tool.uv]\nno-index = true\nfind-links = ['{tmp_path}/wheels']\n"
    )
    folder = project(tmp_path, pyproject_toml=toml, requirements_txt="numpy\n")
    Uv.here().says("lock", folder=folder)
    whole = sent(folder)
    assert listed(whole)[1].startswith("--find-links ")
    assert [line.partition(" ")[0] for line in listed(whole)[2:]] == ["wanted==1.0"]
    assert "uv.lock (found in the folder before pyproject.toml, requirements.txt)" in whole.notes[0]
    tests = listed(sent(folder, kind="test"))
    assert {line.partition(" ")[0] for line in tests[2:]} == {"wanted==1.0", "for-tests==1.0"}
    # Without a Python or an index of the project's, uv compares nothing.
    lock, (wanted, later) = folder / "uv.lock", ("'>=3.11'", "'>=3.16'")
    lock.write_text(lock.read_text().replace(wanted.replace("'", '"'), later.replace("'", '"')))
    (folder / "pyproject.toml").write_text(toml.replace(wanted, later))
    assert [line.partition(" ")[0] for line in listed(sent(folder))[2:]] == ["wanted==1.0"]
    (folder / "pyproject.toml").write_text(
        toml.replace(wanted, later).replace("'wanted'", "'wanted>2'")
    )
    with pytest.raises(ClientError, match=r"pyproject\.toml: it has wanted 1\.0, not >2"):
        sent(folder)
    lock.write_text(lock.read_text().replace(later.replace("'", '"'), wanted.replace("'", '"')))
    (folder / "pyproject.toml").write_text(toml.replace("'wanted'", ""), encoding="utf-8")
    with pytest.raises(ClientError, match=r"uv\.lock is older than pyproject\.toml"):
        sent(folder)


def test_poetry_lock_gives_the_main_group_and_for_tests_all(tmp_path: Path) -> None:
    toml = "[project]\ndependencies = ['wanted']\n"
    folder = project(tmp_path, poetry_lock=POETRY, pyproject_toml=toml)
    wanted = f"wanted==1.0 ; sys_platform == 'linux' --hash={DIGEST}"
    assert listed(sent(folder))[1:] == [wanted]
    assert listed(sent(folder, kind="test"))[1:] == [wanted, f"for-tests==2.0 --hash={DIGEST}"]
    (folder / "poetry.lock").write_text("[[package]]\nname = 'a'\n", encoding="utf-8")
    with pytest.raises(ClientError, match="was written by Poetry 1"):
        sent(folder)


def test_conda_packages_become_pythons(tmp_path: Path) -> None:
    folder = project(tmp_path, environment_yml=CONDA)
    # No index is asked here, so the worker resolves it.
    whole = sent(folder)
    assert whole.requests[0].requirements == ".forge-requirements.txt"
    assert listed(whole) == [
        "numpy==1.26.*", "torch==2.4.1", "scipy==1.14.0", "pandas>=2,<3", "tabulate==0.9",
    ]  # fmt: skip
    assert whole.environments[".forge-requirements.txt"]["python"] == "3.12"


def test_conda_packages_that_are_not_pythons_are_named(tmp_path: Path) -> None:
    text = "dependencies: [python, numpy, cudatoolkit=11.8, librosa, gdal, libpng]\n"
    with pytest.raises(ClientError, match=r"not Python's: cudatoolkit, gdal, libpng\n") as error:
        sent(project(tmp_path, environment_yml=text))
    assert "--image or --dockerfile" in error.value.hint
    # PyTorch's wheel has its own CUDA, but no compiler.
    file = tmp_path / "p" / "environment.yml"
    text = "dependencies: [pytorch=1.11.0, cudatoolkit=11.3, mkl<2024.1, {more}]\n"
    file.write_text(text.format(more="cuda-nvcc"))
    with pytest.raises(ClientError, match="not Python's: cuda-nvcc\n"):
        sent(file.parent)
    file.write_text(text.format(more="torchtriton"))
    whole = sent(file.parent)
    assert listed(whole) == ["torch==1.11.0"]
    assert "in the wheels of others already: cudatoolkit, mkl, torchtriton" in whole.notes[0]


def environment(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Activate a virtual environment, and return the folder of its packages."""
    folder = root / "mine" / "lib" / "python3.12" / "site-packages"
    folder.mkdir(parents=True)
    monkeypatch.setenv("VIRTUAL_ENV", str(root / "mine"))
    return folder


def install(folder: Path, name: str, version: str = "1.0", **files: str) -> None:
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir()
    needs = "".join(f"Requires-Dist: {one}\n" for one in files.pop("needs", "").split())
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    for file, text in {"METADATA": metadata, **files}.items():
        (about / file.replace("__", ".")).write_text(text, encoding="utf-8")


def test_an_active_environment_is_sent_if_the_folder_has_no_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = environment(tmp_path, monkeypatch)
    install(packages, "pip")
    install(packages, "forge_queue", needs="typer[all] numpy;extra=='examples'")
    install(packages, "typer", INSTALLER="pip", needs="shell;extra=='all' other;extra=='no'")
    install(packages, "shell")
    folder = project(tmp_path, main_py="", lib="")
    assert sent(folder).requests[0].requirements is None
    assert "the folder has no list of packages" in sent(folder).notes[0]
    install(packages, "numpy", "2.3.0")
    install(packages, "torch", "2.8.0+cu126")
    install(packages, "mine", direct_url__json='{"url": "file:///mine", "dir_info": {}}')
    built = '{"url": "file:///croot/scipy"}'
    install(packages, "scipy", INSTALLER="conda\n", direct_url__json=built)
    git = '{"url": "https://git.example/g", "vcs_info": {"vcs": "git", "commit_id": "abc"}}'
    install(packages, "from_git", direct_url__json=git)
    whole = sent(folder)
    assert listed(whole) == [
        "# python 3.12",
        "--extra-index-url https://download.pytorch.org/whl/cu126",
        "from-git @ git+https://git.example/g@abc",
        *("numpy==2.3.0", "scipy==1.0", "torch==2.8.0+cu126"),
    ]
    assert "the active environment mine (the folder has no list of packages)" in whole.notes[0]
    assert whole.notes[0].endswith("not sent, because no index has it: mine")
    # An image has what its jobs need, and a list comes before an environment.
    assert sent(folder, image="i").requests[0].requirements is None
    (folder / "requirements.txt").write_text("./lib\n", encoding="utf-8")
    assert sent(folder).requests[0].requirements == "requirements.txt"
    assert listed(sent(folder, requirements="active")) == listed(whole)


def test_condas_base_environment_is_not_taken(tmp_path: Path) -> None:
    install_to = tmp_path / "lib" / "python3.12" / "site-packages"
    install_to.mkdir(parents=True)
    install(install_to, "numpy")
    active = {"CONDA_PREFIX": str(tmp_path), "CONDA_DEFAULT_ENV": "base"}
    assert active_environment(active) is None
    found = active_environment({**active, "CONDA_DEFAULT_ENV": "mine"})
    assert found is not None
    assert (found.pins, found.python) == (("numpy==1.0",), "3.12")


def test_no_active_environment_can_be_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="no environment with packages of its own is active"):
        sent(project(tmp_path, main_py=""), requirements="active")


def test_a_notebook_brings_what_runs_it(tmp_path: Path) -> None:
    folder = project(tmp_path, train_ipynb="{}", requirements_txt="./lib\n", lib="")
    whole = sent(folder, command=["train.ipynb", "-p", "rate", "0.5"])
    assert listed(whole) == ["-r requirements.txt", "papermill", "ipykernel"]
    (folder / "pyproject.toml").write_text("[project]\ndependencies = ['numpy']\n")
    assert listed(sent(folder, command=["train.ipynb"])) == ["numpy", "papermill", "ipykernel"]
    command = whole.requests[0].command
    assert command is not None
    assert command[-4:] == ["train.ipynb", "-p", "rate", "0.5"]
    other = sent(folder, command=["train.ipynb"], requirements=False).requests[0]
    assert (other.requirements, other.command and other.command[0]) == (False, "sh")


def test_the_version_of_python_that_a_project_pins(tmp_path: Path) -> None:
    folder = project(tmp_path, poetry_lock=POETRY)
    (folder / ".python-version").write_text("3.12.4\n", encoding="utf-8")
    assert listed(sent(folder))[0] == "# python 3.12"


def test_the_user_hears_that_a_missing_module_is_in_the_environment(tmp_path: Path) -> None:
    packages = tmp_path / "mine" / "lib" / "python3.12" / "site-packages"
    (packages / "numpy").mkdir(parents=True)
    there = {"VIRTUAL_ENV": str(tmp_path / "mine")}
    assert active.with_module("numpy", there) == "mine"
    assert active.with_module("scipy", there) is None


@pytest.mark.parametrize(
    ("asked", "head"),
    [
        (">=3.13", "3.13 3.14 3.15 3.16 3.17 3.18 3.19 3.20 (>=3.13)"),
        (">=3.9", None),
        (">=3.8,<4", None),
        ("", None),
        (">=3.9,<3.13", "3.11 3.12 (>=3.9,<3.13)"),
        ("==3.12.*", "3.12"),
        ("~=3.12.4", "3.12"),
        ("~=3.18", "3.18 3.19 3.20 (~=3.18)"),
        (">3.18.2, !=3.19.*", "3.18 3.20 (>3.18.2, !=3.19.*)"),
        ("<3.11,>=3.9", "3.10 3.9 (<3.11,>=3.9)"),
        ("<3.9", "3.8 3.7 3.6 (<3.9)"),
        ("3.12", "3.12"),
    ],
)
def test_the_range_of_pythons_that_a_project_asks_for(
    tmp_path: Path, asked: str, head: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    text = f"[project]\nname = 'p'\nversion = '1'\nrequires-python = '{asked}'\n"
    folder = project(tmp_path, pyproject_toml=text)
    whole = sent(folder)
    if head is None:
        assert whole.requests[0].requirements is None
        return
    assert listed(whole) == [f"# python {head}"]
    assert whole.notes[0].startswith(f"none, and Python {asked} (pyproject.toml)")
    (folder / "requirements.txt").write_text("\n")
    assert listed(sent(folder))[0] == f"# python {head}"
    (folder / ".python-version").write_bytes("3.12.4\r\n".encode("utf-16"))
    whole = sent(folder)
    assert listed(whole)[0] == "# python 3.12"
    excluded = f"for Python 3.12 (.python-version), not {asked} (pyproject.toml)"
    assert (excluded in whole.notes[0]) == ("3.12" not in head)


@pytest.mark.parametrize("asked", ["^3.13", ">=3.13 || ==3.14.*"])
def test_the_range_as_poetry_writes_it(tmp_path: Path, asked: str) -> None:
    text = f"[tool.poetry.dependencies]\npython = '{asked}'\n"
    folder = project(tmp_path, pyproject_toml=text, requirements_txt="\n")
    assert listed(sent(folder))[0].startswith("# python 3.13 3.14 ")


@pytest.mark.parametrize("asked", ["new", ">=4", "==2.7.*", "<3.6"])
def test_a_range_that_no_python_is_in_is_refused(tmp_path: Path, asked: str) -> None:
    text = f"[project]\nname = 'p'\nrequires-python = '{asked}'\n"
    with pytest.raises(ClientError, match=r"pyproject.toml: .*Python"):
        sent(project(tmp_path, pyproject_toml=text))


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32", "latin-1"]
)
def test_a_list_is_read_in_the_encoding_that_it_begins_with(tmp_path: Path, encoding: str) -> None:
    wheels = tmp_path / "wheels"
    wheel(wheels, "inner", "1.0")
    marks = {"utf-16-le": "\ufeff", "utf-16-be": "\ufeff", "latin-1": "# -*- coding: latin-1 -*-\n"}
    folder = project(tmp_path)
    text = f"{marks.get(encoding, '')}# é\r\n-r more.txt\r\n"
    (folder / "requirements.txt").write_bytes(text.encode(encoding))
    more = f"--no-index\n--find-links {wheels}\ninner\n"
    (folder / "more.txt").write_bytes(f"{marks.get(encoding, '')}{more}".encode(encoding))
    whole = sent(folder)
    if encoding in {"latin-1", "utf-32"}:  # which uv does not read, and pip does
        assert whole.requests[0].requirements == "requirements.txt"
    else:
        assert "inner==1.0" in listed(whole)[3]


@pytest.mark.parametrize("name", ["requirements.txt", "pyproject.toml", "environment.yml"])
def test_a_list_that_is_not_text_is_refused_where_it_is_submitted(
    tmp_path: Path, name: str
) -> None:
    folder = project(tmp_path)
    (folder / name).write_bytes(b"six\n\xff\n")
    with pytest.raises(ClientError, match=name):
        sent(folder)
