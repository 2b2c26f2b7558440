"""A lock names nothing of the submitter's machine but what is in the job's bundle."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from forge_client.errors import ClientError
from forge_client.project.environment.local import place_in
from forge_client.project.environment.tables import PUBLIC
from forge_client.project.environment.uv import Uv
from support.packages import listed, pins, sent, write
from support.wheels import wheel

LIB = "[project]\nname = 'mylib'\nversion = '1'\nrequires-python = '>=3.11'\n"
BUILT = "[build-system]\nrequires = ['uv_build']\nbuild-backend = 'uv_build'\n"
NO_INDEX = "[tool.uv]\nno-index = true\n"
APP = (
    "[project]\nname = 'app'\nversion = '1'\nrequires-python = '>=3.11'\n"
    "dependencies = ['mylib']\n[tool.uv.sources]\nmylib = {workspace = true}\n"
)
ROOT = f"[tool.uv.workspace]\nmembers = ['packages/*']\n{NO_INDEX}"
CODE = "packages/lib/src/mylib/__init__.py"


def workspace(root: Path) -> Path:
    """Write a workspace of uv without a lock, and return the folder of the member `app`."""
    write(
        root,
        {
            "pyproject.toml": ROOT,
            "packages/lib/pyproject.toml": LIB + BUILT,
            CODE: "VALUE = 1\n",
            "packages/app/pyproject.toml": APP,
            "packages/app/train.py": "import mylib\n",
        },
    )
    return root / "packages" / "app"


def test_a_member_of_a_workspace_has_its_lock_and_the_code_of_the_others(tmp_path: Path) -> None:
    app = workspace(tmp_path)
    Uv.here().says("lock", folder=tmp_path)
    whole = sent(app)
    assert whole.notes[0].startswith("../../uv.lock (found in the folder before pyproject.toml)")
    assert whole.notes[0].endswith("1 package locked, lib from beside the project")
    assert listed(whole)[1:] == ["./.forge-packages/lib"]
    names = {one.name: one for one in whole.listing.entries}
    assert names[".forge-packages/lib/src/mylib/__init__.py"].path == tmp_path / CODE
    assert names[".forge-packages"].folder
    assert names[".forge-packages/lib"].folder
    (tmp_path / ".python-version").write_text("3.12\n")
    assert listed(sent(app))[0] == "# python 3.12"
    (app / ".python-version").write_text("3.13\n")
    assert listed(sent(app))[0] == "# python 3.13"
    # No machine has this one.
    (app / ".python-version").write_text("3.99\n")
    assert listed(sent(app))[0] == "# python 3.99"
    # Its code is what it is at the next submit, and a list that has changed is refused.
    (tmp_path / CODE).write_text("VALUE = 'longer'\n")
    entry = {one.name: one for one in sent(app).listing.entries}[f".forge-{CODE}"]
    assert entry.size == len("VALUE = 'longer'\n")
    newer = LIB.replace("version = '1'", "version = '2'")
    (tmp_path / "packages/lib/pyproject.toml").write_text(newer + BUILT)
    with pytest.raises(ClientError, match=r"uv\.lock is older than pyproject\.toml"):
        sent(app)


def test_without_a_lock_the_others_come_along_too_and_nothing_is_kept(
    tmp_path: Path, kept: Path
) -> None:
    app = workspace(tmp_path)
    assert listed(sent(app))[1:] == ["./.forge-packages/lib"]
    texts = [one.read_text() for one in kept.iterdir()]
    assert not any("file:" in text or str(tmp_path) in text for text in texts)
    # What a member requires may change, and its own list stays the same.
    assert len(texts) == 1
    assert listed(sent(tmp_path, requirements="packages/app/pyproject.toml"))[1:] == [
        "./packages/lib"
    ]


def test_a_member_that_needs_the_folder_around_it_is_submitted_from_there(tmp_path: Path) -> None:
    app = workspace(tmp_path)
    root = LIB.replace("mylib", "whole") + ROOT + BUILT
    write(
        tmp_path,
        {"pyproject.toml": root, "packages/app/pyproject.toml": APP.replace("mylib", "whole")},
    )
    Uv.here().says("lock", folder=tmp_path)
    with pytest.raises(ClientError, match="which contains the project") as error:
        sent(app)
    assert error.value.hint == f"submit from there: cd {tmp_path}"


def test_a_member_of_a_workspace_that_is_not_there_is_never_asked_of_an_index(
    tmp_path: Path,
) -> None:
    folder = write(tmp_path, {"pyproject.toml": APP})
    with pytest.raises(ClientError, match=r"takes mylib from \[tool\.uv\.sources\]"):
        sent(folder)
    # An image, which may have some of it, does not make it known to pip either.
    with pytest.raises(ClientError, match=r"takes mylib from \[tool\.uv\.sources\]"):
        sent(folder, image="busybox")


def test_an_index_that_only_uv_would_ask_is_in_the_list(tmp_path: Path) -> None:
    own = "[project]\nname = 'p'\nversion = '1'\ndependencies = ['six']\n"
    found = "[tool.uv]\nextra-index-url = ['https://a.example/simple']\nfind-links = ['/wheels']\n"
    index = "[[tool.uv.index]]\nurl = 'https://b.example/simple'\ndefault = true\n"
    folder = write(tmp_path / "p", {"pyproject.toml": own + found + index})
    lines = ["--index-url https://b.example/simple", "--extra-index-url https://a.example/simple"]
    assert listed(sent(folder, image="busybox")) == [*lines, "--find-links /wheels", "six"]
    # This file comes before the table, and the workspace before its members.
    root = "[tool.uv.workspace]\nmembers = ['p']\n"
    write(tmp_path, {"uv.toml": "no-index = true\n", "pyproject.toml": root})
    (folder / "pyproject.toml").write_text(own)
    assert listed(sent(folder, image="busybox")) == ["--no-index", "six"]


@pytest.mark.parametrize("place", ["path = '../lib'", "git = 'https://g.example'", "source = 'x'"])
def test_a_place_that_only_poetry_reads_is_never_asked_of_an_index(
    tmp_path: Path, place: str
) -> None:
    own = APP.partition("[tool.uv.sources]")[0]
    text = f"{own}[tool.poetry.dependencies]\npython = '*'\nmylib = {{{place}}}\n"
    folder = write(tmp_path, {"pyproject.toml": text})
    for image in (None, "busybox"):
        with pytest.raises(ClientError, match=r"takes mylib from \[tool\.poetry\.dependencies\]"):
            sent(folder, image=image)


def test_the_root_of_a_workspace_says_where_packages_are(tmp_path: Path) -> None:
    own, _, source = APP.partition("[tool.uv.sources]")
    root = f"{ROOT}[tool.uv.sources]{source}"
    write(tmp_path, {"pyproject.toml": root, "packages/app/pyproject.toml": own})
    with pytest.raises(ClientError, match=r"takes mylib from \[tool\.uv\.sources\]"):
        sent(tmp_path / "packages/app", image="busybox")


def test_an_extra_of_the_project_itself_is_no_package(tmp_path: Path) -> None:
    more = "all = ['app[train,all]', 'inner']\ntrain = ['six']\n"
    text = APP.replace("[tool.uv.sources]", f"[project.optional-dependencies]\n{more}[tool.x]")
    folder = write(tmp_path, {"pyproject.toml": text})
    whole = sent(folder, extras=["all"], image="busybox")
    assert listed(whole) == ["mylib", "six", "inner"]


@pytest.mark.parametrize("entry", ["{include-group = 'gone'}", "{other = 'x'}", "{}"])
def test_a_malformed_group_is_refused_not_left_out(tmp_path: Path, entry: str) -> None:
    text = f"[project]\nname = 'p'\n[dependency-groups]\ng = [{entry}]\n"
    for image in (None, "busybox"):
        with pytest.raises(ClientError, match=r"the group 'g' (includes 'gone'|has )"):
            sent(write(tmp_path, {"pyproject.toml": text}), groups=["g"], image=image)


def test_an_index_that_pdm_or_poetry_would_ask_is_asked(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "mylib", "1.0")
    own = APP.partition("[tool.uv.sources]")[0] + NO_INDEX
    sources = (
        f"[[tool.pdm.source]]\ntype = 'find_links'\nurl = '{tmp_path}/wheels'\n"
        f"[[tool.pdm.source]]\nname = 'pypi'\nurl = '{PUBLIC}/'\n"
    )
    folder = write(tmp_path / "app", {"pyproject.toml": own + sources})
    found = f"--find-links {tmp_path}/wheels"
    assert [line.split()[0] for line in listed(sent(folder))[2:]] == ["mylib==1.0"]
    assert listed(sent(folder))[1] == found
    private = "[[tool.poetry.source]]\nname = 'p'\nurl = 'https://p.example/simple'\n"
    write(folder, {"pyproject.toml": own + sources + private})
    lines = listed(sent(folder, image="busybox"))
    assert lines[1:] == [found, "--extra-index-url https://p.example/simple", "mylib"]


POETRY = """
[[package]]
name = "mylib"
version = "1"
optional = false
groups = ["main"]
files = []
[package.source]
type = "directory"
url = "../lib"
[metadata]
lock-version = "2.1"
"""
PYLOCK = """
lock-version = "1.0"
created-by = "test"
[[packages]]
name = "mylib"
directory = {path = "../lib", editable = true}
"""


@pytest.mark.parametrize(("name", "text"), [("poetry.lock", POETRY), ("pylock.toml", PYLOCK)])
def test_a_package_beside_the_project_comes_along(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path, {"lib/pyproject.toml": LIB, "lib/mylib.py": "", f"app/{name}": text})
    whole = sent(tmp_path / "app")
    assert pins(whole) == ["./.forge-packages/lib"]
    assert {".forge-packages/lib/mylib.py", ".forge-packages/lib/pyproject.toml"} <= {
        one.name for one in whole.listing.files
    }
    # Its tool does not look, and the worker installs nothing that the lock lacks.
    own = tmp_path / "lib" / "pyproject.toml"
    own.write_text(f"{LIB}dependencies = ['six']\n")
    with pytest.raises(ClientError, match=r"is older than \.\./lib/pyproject\.toml: six is not in"):
        sent(tmp_path / "app")
    own.unlink()
    with pytest.raises(ClientError, match="lib, which is no package"):
        sent(tmp_path / "app")


def test_a_package_that_git_leaves_out_is_missed_at_submit(tmp_path: Path) -> None:
    text = POETRY.replace("../lib", "lib")
    folder = write(tmp_path, {"poetry.lock": text, "lib/pyproject.toml": LIB})
    assert pins(sent(folder)) == ["./lib"]
    (folder / ".forgeignore").write_text("lib\n")
    with pytest.raises(ClientError, match="names lib, which is left out of the bundle"):
        sent(folder)
    # uv writes such a path without a dot.
    (folder / "poetry.lock").unlink()
    source = APP.replace("workspace = true", "path = 'vendor/lib'")
    write(folder, {"pyproject.toml": source, "vendor/lib/pyproject.toml": LIB + BUILT})
    with pytest.raises(ClientError, match="names vendor/lib, which is left out of the bundle"):
        sent(folder)


OUTSIDE = "outside the project|not on this machine|not in the project"


@pytest.mark.parametrize(
    "line",
    [
        "-e ../lib",
        "../lib",
        "--editable=../lib",
        "mylib @ file:{root}/lib",
        "mylib[gpu] @ file://{root}/lib ; python_version > '3'",
        "-e {root}/lib",
        "-e file://{root}/lib#egg=mylib",
        "{root}/lib",
        "file://{root}/lib",
        "../mylib-1-py3-none-any.whl",
        "./gone",
        # What `pip freeze` says of packages that conda built, and of a repository.
        "numpy @ file:///croot/numpy_1701295/work/dist/numpy-1.26.4.whl#sha256=ab",
        "-e git+file:///gone/repository@abc#egg=mylib",
    ],
)
def test_a_list_that_names_what_no_worker_has_is_refused(tmp_path: Path, line: str) -> None:
    write(tmp_path, {"lib/pyproject.toml": LIB, "mylib-1-py3-none-any.whl": ""})
    line = line.format(root=tmp_path)
    folder = write(tmp_path / "app", {"requirements.txt": "-r more.txt\n", "more.txt": f"{line}\n"})
    with pytest.raises(ClientError, match=OUTSIDE) as error:
        sent(folder)
    assert "more.txt" in error.value.message
    (folder / "requirements.txt").unlink()
    write(folder, {"environment.yml": f"dependencies:\n- pip:\n  - {line!r}\n"})
    with pytest.raises(ClientError, match=OUTSIDE):
        sent(folder)


def test_a_list_is_complete_at_submit(tmp_path: Path) -> None:
    folder = write(tmp_path / "app", {"requirements.txt": "-r gone.txt\n"})
    with pytest.raises(ClientError, match=r"gone\.txt, which requirements\.txt includes"):
        sent(folder)
    # What uv can resolve here may lie outside; what the worker resolves may not.
    write(tmp_path, {"app/requirements.txt": "-r ../more.txt\n", "more.txt": "# nothing\n"})
    assert listed(sent(folder)) == ["# any python"]
    with pytest.raises(ClientError, match=r"includes .*more\.txt, which is not in the bundle"):
        sent(folder, image="busybox")


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("numpy==1", None),
        ("numpy @ https://example.org/a.whl", None),
        ("git+https://example.org/a@b", None),
        ("-e git+ssh://git@example.org/a", None),
        ("--find-links ./wheels", None),
        ("-r more.txt", None),
        ("# -e ../lib", None),
        ("lib.zip", "lib.zip"),
        ("wheels/a-1-py3-none-any.whl ; os_name == 'posix'", "wheels/a-1-py3-none-any.whl"),
        ("-e lib", "lib"),
        ("-e ./lib[gpu]", "lib"),
        ("a @ file:///x%20y", "/x y"),
        ("a @ file://localhost/x", "/x"),
        ("a @ ./x", "x"),
        ("./x#subdirectory=y", "x/y"),
        ("a @ file:///${PROJECT_ROOT}/../x", "../x"),
        ("vendor/lib", "vendor/lib"),
        ("-rlists/more.txt", None),
    ],
)
def test_what_a_line_names(line: str, path: str | None) -> None:
    found = place_in(line)
    assert (found and str(found.path)) == path


def test_a_folder_with_wheels_is_named_from_the_project(tmp_path: Path) -> None:
    wheel(tmp_path / "packages/app/wheels", "mylib", "1.0")
    found = NO_INDEX + "find-links = ['packages/app/wheels']\n"
    root = f"[tool.uv.workspace]\nmembers = ['packages/*']\n{found}"
    own = APP.partition("[tool.uv.sources]")[0]
    app = write(tmp_path, {"pyproject.toml": root, "packages/app/pyproject.toml": own})
    app /= "packages/app"
    for _ in range(2):
        assert listed(sent(app))[1] == "--find-links ./wheels"
        Uv.here().says("lock", folder=tmp_path)
    (app / ".forgeignore").write_text("wheels\n")
    with pytest.raises(ClientError, match="names wheels, which is left out of the bundle"):
        sent(app)
    (app / "wheels").rename(tmp_path / "wheels")
    write(tmp_path, {"pyproject.toml": root.replace("packages/app/wheels", "wheels")})
    Uv.here().says("lock", folder=tmp_path)
    with pytest.raises(ClientError, match=r"`--find-links wheels` is .* outside the project"):
        sent(app)


def test_a_package_of_a_repository_here_is_the_one_that_was_locked(tmp_path: Path) -> None:
    lib = write(tmp_path / "lib", {"pyproject.toml": LIB + BUILT, "src/mylib/__init__.py": ""})
    for words in ("init -q", "add .", "-c user.name=a -c user.email=b commit -qm c"):
        subprocess.run(["git", "-C", lib, *words.split()], check=True)
    source = "[tool.uv.sources]\nmylib = {git = 'file://%s'}\n"
    own = APP.partition("[tool.uv.sources]")[0] + source % lib
    app = write(tmp_path / "app", {"pyproject.toml": own})
    assert pins(sent(app)) == ["./.forge-packages/lib"]
    (lib / "src/mylib/__init__.py").write_text("VALUE = 2\n")
    with pytest.raises(ClientError, match="where other files are checked out"):
        sent(app)


def test_no_path_of_this_machine_is_left_to_the_worker(tmp_path: Path) -> None:
    write(tmp_path, {"lib/pyproject.toml": LIB})
    own = (
        f"[project]\nname = 'p'\nversion = '1'\ndependencies = ['mylib @ file://{tmp_path}/lib']\n"
    )
    folder = write(tmp_path / "app", {"pyproject.toml": own})
    with pytest.raises(ClientError, match="outside the project"):
        sent(folder, image="busybox")


def test_no_lock_names_an_index_on_this_machine(tmp_path: Path) -> None:
    text = f"--no-index\n--find-links file://{tmp_path}\n"
    whole = sent(write(tmp_path, {"requirements.txt": text}))
    assert whole.requests[0].requirements == "requirements.txt"
    assert re.search("not locked: it names an index on this machine", whole.notes[0])
