"""Locks that other tools wrote: `locks` has files of real ones, in folders with their versions.

All are of the same project: `humanize` and `tabulate`, an extra `train` with `inflection`, and the
groups `gpu` with `toolz` and `dev` with `iniconfig`.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest
from forge_client.errors import ClientError
from forge_client.project.environment.names import decided
from forge_client.project.environment.tables import OF_PYPI, PUBLIC
from forge_client.project.environment.tools import pipenv, poetry
from forge_client.project.environment.uv import Uv
from support.packages import listed, pins, sent, write

LOCKS = Path(__file__).with_name("locks")
MAIN = ["humanize==4.17.0", "tabulate==0.9.0"]
TRAIN, GPU, DEV = "inflection==0.5.1", "toolz==1.2.0", "iniconfig==2.3.1"
WITH_ALL = ("poetry-2.5.1", "pdm-2.25.9", "pdm-2.25.9-pylock")


# The files do not name the public index; each stands there as this.
STANDING_FOR = {"https://public.example/simple": PUBLIC, "https://files.example/": OF_PYPI}


def of(root: Path, tool: str) -> Path:
    return Path(shutil.copytree(LOCKS / tool, root / tool, copy_function=_with_the_public_index))


def _with_the_public_index(source: str, target: str) -> None:
    text = Path(source).read_text(encoding="utf-8")
    for written, meant in STANDING_FOR.items():
        text = text.replace(written, meant)
    Path(target).write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("tool", "lock"),
    [
        ("poetry-2.5.1", "poetry.lock"),
        ("pdm-2.25.9", "pdm.lock"),
        ("pdm-2.25.9-pylock", "pylock.toml"),
        ("pip-26.3", "pylock.toml"),
        ("pipenv-2026.10.3", "Pipfile.lock"),
    ],
)
def test_a_lock_of_another_tool_is_taken_as_it_is(tmp_path: Path, tool: str, lock: str) -> None:
    whole = sent(of(tmp_path, tool))
    assert whole.notes[0].startswith(f"{lock} (found in the folder")
    assert whole.notes[0].endswith("2 packages locked")
    assert pins(whole) == MAIN
    assert all("--hash=sha256:" in line for line in listed(whole)[1:])
    # A package is needed where the tool says so.
    assert (" ; sys_platform != " in listed(whole)[2]) == (tool != "pip-26.3")


@pytest.mark.parametrize("tool", WITH_ALL)
def test_extras_and_groups_are_those_that_are_asked_for(tmp_path: Path, tool: str) -> None:
    folder = of(tmp_path, tool)
    assert set(pins(sent(folder, extras=["train"]))) == {*MAIN, TRAIN}
    assert set(pins(sent(folder, groups="gpu"))) == {*MAIN, GPU}
    whole = sent(folder, extras=["train"], groups=["gpu", "dev"])
    assert set(pins(whole)) == {*MAIN, TRAIN, GPU, DEV}
    assert " with extra train, group gpu and group dev (found" in whole.notes[0]
    assert set(pins(sent(folder, kind="test"))) >= {*MAIN, GPU, DEV}
    for asked in ({"extras": ["gone"]}, {"groups": ["gone"]}):
        with pytest.raises(ClientError, match=r"has no (extra|group) 'gone': it has .*train|gpu"):
            sent(folder, **asked)


def test_the_categories_of_pipenv_are_groups(tmp_path: Path) -> None:
    folder = of(tmp_path, "pipenv-2026.10.3")
    for name in ("dev", "dev-packages", "develop"):
        assert set(pins(sent(folder, groups=[name]))) == {*MAIN, DEV}
    with pytest.raises(ClientError, match=r"Pipfile\.lock has no extras"):
        sent(folder, extras=["train"])


def test_the_python_of_a_lock_decides(tmp_path: Path) -> None:
    assert listed(sent(of(tmp_path, "pipenv-2026.10.3")))[0] == "# python 3.11"
    folder = of(tmp_path, "pip-26.3")
    lock = folder / "pylock.toml"
    lock.write_text(f'requires-python = ">=3.12,<3.14"\n{lock.read_text()}')
    assert listed(sent(folder))[0] == "# python 3.12 3.13 (>=3.12,<3.14)"
    (folder / ".python-version").write_text("# for the cluster\n3.13.1\n")
    assert listed(sent(folder))[0] == "# python 3.13"


@pytest.mark.parametrize("tool", ["poetry-2.5.1", "pdm-2.25.9", "pdm-2.25.9-pylock", "pip-26.3"])
@pytest.mark.parametrize(
    ("was", "now"), [("humanize>=4.9,<5", "humanize>=4.9,<4.10"), ('"humanize', '"six", "humanize')]
)
def test_a_lock_that_is_older_than_its_project_is_refused(
    tmp_path: Path, tool: str, was: str, now: str
) -> None:
    folder = of(tmp_path, tool)
    project = folder / "pyproject.toml"
    project.write_text(project.read_text().replace(was, now))
    with pytest.raises(ClientError, match=r"is older than pyproject\.toml") as error:
        sent(folder)
    assert "--requirements pyproject.toml" in error.value.hint
    # What has nothing to do with packages changes nothing.
    project.write_text(project.read_text().replace(now, was) + "[tool.ruff]\nline-length = 99\n")
    assert pins(sent(folder)) == MAIN


def test_a_group_that_is_newer_than_a_lock_of_poetry_makes_it_older(tmp_path: Path) -> None:
    folder = of(tmp_path, "poetry-2.5.1")
    project, lock = folder / "pyproject.toml", folder / "poetry.lock"
    project.write_text(
        project.read_text().replace("[dependency-groups]", "[dependency-groups]\nn = []")
    )
    with pytest.raises(ClientError, match="is older"):
        sent(folder)
    # Before 2.3, groups were no part of the digest.
    about = {"project": tomllib.loads(project.read_text())["project"]}
    kept = next(poetry.digests({**about, **_tool(project)}, old=False))
    text = re.sub("content-hash = .*", f'content-hash = "{kept}"', lock.read_text())
    lock.write_text(text.replace("Poetry 2.5.1", "Poetry 2.2.0"))
    assert pins(sent(folder)) == MAIN
    lock.write_text(text)
    with pytest.raises(ClientError, match="is older"):
        sent(folder)


def _tool(project: Path) -> dict[str, object]:
    return {"tool": tomllib.loads(project.read_text())["tool"]}


def test_a_pipfile_lock_that_is_older_than_its_pipfile_is_refused(tmp_path: Path) -> None:
    folder = of(tmp_path, "pipenv-2026.10.3")
    pipfile = folder / "Pipfile"
    pipfile.write_text(pipfile.read_text().replace("[packages]", "[packages]\nsix = '*'"))
    with pytest.raises(ClientError, match=r"Pipfile\.lock is older than Pipfile"):
        sent(folder)


def test_a_package_without_a_version_is_for_another_system(tmp_path: Path) -> None:
    folder = of(tmp_path, "pipenv-2026.10.3")
    lock, pipfile = folder / "Pipfile.lock", folder / "Pipfile"
    lock.write_text(
        lock.read_text().replace('"default": {', '"default": {"six": {"version": "*"},')
    )
    text = pipfile.read_text()
    for asked, is_needed in (("win32", False), ("linux", True)):
        entry = f"Six = {{version = '*', sys_platform = \"== '{asked}'\"}}"
        pipfile.write_text(text.replace("[packages]", f"[packages]\n{entry}"))
        kept = next(pipenv.digests(tomllib.loads(pipfile.read_text())))
        lock.write_text(re.sub(r'"sha256": "\w+"', f'"sha256": "{kept}"', lock.read_text()))
        if is_needed:
            with pytest.raises(ClientError, match=r"has no version of six: it was locked where"):
                sent(folder)
        else:
            assert pins(sent(folder)) == MAIN


@pytest.mark.parametrize("asked", ["sys_platform == 'win32'", "sys_platform == 'linux'"])
def test_a_lock_for_other_systems_is_refused(tmp_path: Path, asked: str) -> None:
    head = 'lock-version = "1.0"\ncreated-by = "x"\n'
    folder = tmp_path / "pylock"
    text = f'{head}environments = ["{asked}", "sys_platform == \'darwin\'"]\npackages = []\n'
    folder.mkdir()
    write(folder, {"pylock.toml": text})
    own = "[project]\nname = 'p'\nversion = '1'\nrequires-python = '>=3.11'\ndependencies = []\n"
    other = write(tmp_path, {"pyproject.toml": f'{own}[tool.uv]\nenvironments = ["{asked}"]\n'})
    Uv.here().says("lock", folder=other)
    for one in (folder, other):
        if "win32" in asked:
            with pytest.raises(
                ClientError, match=r"lock(\.toml)? is for no Linux, but for sys_plat"
            ):
                sent(one)
        else:
            assert pins(sent(one)) == []


def test_a_lock_of_poetry_1_is_refused_with_the_way_on(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match=r"poetry\.lock was written by Poetry 1") as error:
        sent(of(tmp_path, "poetry-1.8.5"))
    assert "`poetry lock` of Poetry 2 writes it again" in error.value.hint


def test_a_lock_of_a_newer_poetry_is_refused(tmp_path: Path) -> None:
    folder = of(tmp_path, "poetry-2.5.1")
    lock = folder / "poetry.lock"
    lock.write_text(lock.read_text().replace('lock-version = "2', 'lock-version = "3'))
    with pytest.raises(ClientError, match=r"lock-version 3\.1, which this Forge does not know"):
        sent(folder)


def test_a_list_is_used_by_its_lock(tmp_path: Path) -> None:
    assert "not used" not in sent(of(tmp_path, "pipenv-2026.10.3")).notes[0]
    listed = "[tool.poetry.dependencies]\npython = '^3.11'\nsix = '*'\n"
    locked = "[[package]]\nname = 'six'\nversion = '1.17.0'\ngroups = ['main']\n"
    folder = tmp_path / "poetry"
    folder.mkdir()
    whole = sent(write(folder, {"pyproject.toml": listed, "poetry.lock": locked}))
    assert whole.notes[0].startswith("poetry.lock (found in the folder), 1 package")


def test_lists_that_are_there_too_are_named(tmp_path: Path) -> None:
    more = {"requirements.txt": "six==1.17.0\n", "Pipfile": "[packages]\n", "pixi.toml": ""}
    whole = sent(write(tmp_path, more))
    assert "(found in the folder, not used: Pipfile and pixi.toml" in whole.notes[0]


@pytest.mark.parametrize(
    "name", ["poetry.lock", "pdm.lock", "Pipfile.lock", "pylock.toml", "pixi.lock", "uv.lock"]
)
@pytest.mark.parametrize("text", ["", "{}", "<<<<<<< HEAD\n"])
def test_an_empty_or_broken_lock_is_refused(tmp_path: Path, name: str, text: str) -> None:
    project = "[project]\nname = 'p'\nversion = '1'\ndependencies = ['six']\n"
    with pytest.raises(ClientError, match=name) as error:
        sent(write(tmp_path, {name: text, "pyproject.toml": project}))
    assert error.value.code == "requirements_invalid"


def test_a_lock_that_is_left_out_of_the_bundle_is_not_taken(tmp_path: Path) -> None:
    project = "[project]\nname = 'p'\nversion = '1'\nrequires-python = '>=3.11'\n"
    more = {"uv.lock": "", "poetry.lock": "", ".forgeignore": "*.lock\n", "requirements.txt": "\n"}
    whole = sent(write(tmp_path, {"pyproject.toml": project, **more}))
    assert whole.notes[0].startswith("requirements.txt (found in the folder)")


PYLOCK = """
lock-version = "1.0"
created-by = "test"
[[packages]]
name = "a"
version = "1"
index = "https://example.org/simple"
wheels = [{url = "https://example.org/a-1-py3-none-any.whl", hashes = {sha256 = "00", md5 = "1"}}]
[[packages]]
name = "b"
vcs = {type = "git", url = "https://example.org/b", commit-id = "abc", subdirectory = "x"}
[[packages]]
name = "c"
archive = {url = "https://example.org/c.tar.gz", hashes = {sha256 = "00"}}
[[packages]]
name = "d"
directory = {path = "lib", editable = true}
[[packages]]
name = "e"
version = "1"
wheels = [{url = "https://example.org/e-1-py3-none-any.whl", hashes = {sha256 = "00"}}]
[[packages]]
name = "f"
version = "1"
wheels = [{path = "wheels/f-1-py3-none-any.whl", hashes = {sha256 = "00"}}]
"""


def test_every_kind_of_package_in_a_pylock(tmp_path: Path) -> None:
    own = "[project]\nname = 'd'\nversion = '1'\n"
    files = {"pylock.gpu.toml": PYLOCK, "lib/pyproject.toml": own}
    folder = write(tmp_path, {**files, "wheels/f-1-py3-none-any.whl": ""})
    assert listed(sent(folder, requirements="pylock.gpu.toml"))[1:] == [
        "--extra-index-url https://example.org/simple",
        "a==1",
        "b @ git+https://example.org/b@abc#subdirectory=x",
        "c @ https://example.org/c.tar.gz",
        "./lib",
        "e @ https://example.org/e-1-py3-none-any.whl",
        "./wheels/f-1-py3-none-any.whl",
    ]
    # One of several is not taken unless it is named.
    with pytest.raises(ClientError, match=r"are in pylock\.gpu\.toml, which") as error:
        sent(folder)
    assert "--requirements pylock.gpu.toml" in error.value.hint


@pytest.mark.parametrize(
    ("marker", "left"),
    [
        ("", ""),
        ("extra == 'a'", ""),
        ("extra == 'b'", None),
        ("'b' in extras or 'g' in dependency_groups", ""),
        ("'b' not in extras", ""),
        ("extra != 'a'", None),
        ("os_name == 'nt' and ('a' in extras or 'b' in extras)", "os_name == 'nt'"),
        ("(os_name == 'x' or os_name == 'y') and extra == 'A'", "os_name == 'x' or os_name == 'y'"),
        ("os_name == 'nt' and extra == 'b' or python_version < '3'", "python_version < '3'"),
        ("platform_machine not in 'a b'", "platform_machine not in 'a b'"),
        (
            "(os_name == 'x' or os_name == 'y') and extra == 'a' and python_version<'3'",
            "(os_name == 'x' or os_name == 'y') and python_version < '3'",
        ),
    ],
)
def test_what_is_left_of_a_marker_is_for_the_worker(marker: str, left: str | None) -> None:
    assert decided(marker, ["a"], ["g"]) == left


@pytest.mark.parametrize(
    "marker", ["extra ==", "(os_name == 'x'", "os_name 'x'", "and", "a == b c"]
)
def test_a_malformed_marker_is_an_error(marker: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        decided(marker, [], [])


def test_a_list_compiled_from_another_that_has_changed_is_refused(tmp_path: Path) -> None:
    made = "# This file was autogenerated by uv via the following command:\nsix==1.16.0\n"
    folder = write(tmp_path, {"requirements.txt": made, "requirements.in": "six<1.17\n"})
    assert pins(sent(folder, requirements="requirements.txt")) == ["six==1.16.0"]
    (folder / "requirements.in").write_text("six>=1.17\n-c other.txt\n")
    with pytest.raises(ClientError, match=r"older than requirements\.in: it has six 1\.16\.0"):
        sent(folder)
