"""Which files of a repository are packed: those that git lists, with git and without it."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from forge_client.project.git import program
from forge_client.project.scan import scan

if TYPE_CHECKING:
    from pathlib import Path

WHO = (
    "-c",
    "user.name=ann",
    "-c",
    "user.email=ann@example.org",
    "-c",
    "protocol.file.allow=always",
)


def run(folder: Path, *words: str) -> bytes:
    done = subprocess.run(["git", *WHO, "-C", folder, *words], capture_output=True, check=True)
    return done.stdout


def write(root: Path, *files: str, **texts: str) -> None:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x\n")
    for name, text in texts.items():
        (root / f".{name}").write_text(text)


def by_git(root: Path) -> set[str]:
    """Return what git lists, as far as it is there."""
    said = run(root, "ls-files", "-z", "-co", "--exclude-standard").split(b"\0")
    return {os.fsdecode(one) for one in said if one and os.path.lexists(root / os.fsdecode(one))}


def packed(root: Path) -> set[str]:
    return {entry.name for entry in scan(root).files}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without a configuration of git."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    run(root, "init", "-q")
    return root


@pytest.fixture(params=["git", "library"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Ask git, or do without it."""
    if request.param == "library":
        monkeypatch.setattr(program, "PROGRAM", "there-is-no-git")
    return str(request.param)


LISTS = [
    "*\n!*/\n!*.py\n!.gitignore\n",
    "*\n!**/\n!*.py\n",
    "*\n!/**/\n!*.py\n",
    "*\n!src\n!src/*\n!conf/\n!conf/*.yaml\n",
    "src/**\n!src/b.py\n",
    "data/**\n!data/**/\n!data/**/.gitkeep\n",
    "data/**\n!data/raw/\n!data/raw/x\n",
    "data/*\n!data/raw/\n",
    "/*\n!/src/\n",
    "*\n!src/\n!src/**\n",
    "*.*\n!*.py\n",
    "src/pkg\n!src/pkg/a.py\n",
    "***/a.py\n",
    "q\\\n\\!bang\n\\#hash\n",
    "trailing \nescaped\\ \n",
    "\ufeff*.py\r\nconf\r\n",
    "[a-c].py\n[!a]/x\nconf/[[:alpha:]].yaml\n",
    "**/raw\n",
    "src/**/a.py\n",
    "!\n/\n//\n*.yaml/\nconf/c.yaml/\n",
]
FILES = (
    "main.py", "src/b.py", "src/pkg/a.py", "conf/c.yaml", "data/.gitkeep", "data/raw/x",
    "data/y.csv", "data/raw/deep/.gitkeep", "!bang", "#hash", "trailing", "escaped ", "q",
    "b/x", "a/x",
)  # fmt: skip


def _library(root: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    with monkeypatch.context() as patch:
        patch.setattr(program, "PROGRAM", "there-is-no-git")
        return packed(root)


@pytest.mark.parametrize("text", LISTS)
def test_patterns_mean_what_they_mean_to_git(
    project: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, *FILES, gitignore=text)
    assert packed(project) == by_git(project)
    assert _library(project, monkeypatch) == by_git(project)


WORDS = ["a", "b", "ab", "x.py", "y.csv", "data", "src", "a b", "[a]", "ü"]
PARTS = [*WORDS, "*", "**", "*.py", "?", "[ab]", "[!a]", "a*", "*b", "\\a", "\\*", "[[:alpha:]]*"]


def _generated(root: Path, chance: random.Random) -> None:
    for _ in range(chance.randint(5, 25)):
        depth = chance.randint(1, 4)
        path = root.joinpath(*(chance.choice(WORDS) for _ in range(depth)))
        if not any(one.is_file() for one in (path, *path.parents)) and not path.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
    folders = [root, *(one for one in root.rglob("*") if one.is_dir() and ".git" not in one.parts)]
    for folder in chance.sample(folders, min(len(folders), chance.randint(1, 3))):
        lines = []
        for _ in range(chance.randint(1, 6)):
            parts = "/".join(chance.choice(PARTS) for _ in range(chance.randint(1, 3)))
            before = chance.choice(["", "", "/", "!", "!", "!/"])
            lines.append(f"{before}{parts}{chance.choice(['', '', '/'])}\n")
        (folder / ".gitignore").write_text("".join(lines))


@pytest.mark.parametrize("seed", range(60))
def test_a_generated_tree_is_packed_as_git_lists_it(
    project: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)  # noqa: S311 - a test's dice
    _generated(project, chance)
    below = sorted(one for one in project.iterdir() if one.is_dir() and one.name != ".git")
    for root in (project, *below[:1]):
        ours = _library(root, monkeypatch)
        if listed := by_git(root):
            assert ours == listed, seed
    run(project, "add", "-A")
    for path in sorted(project.rglob("*.py"))[:2]:
        run(project, "add", "-f", str(path))
    assert packed(project) == by_git(project), seed


@pytest.fixture
def full(project: Path, home: Path) -> Path:
    """A repository with every place that git reads patterns from."""
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "ignore").write_text("glob.txt\n")
    (project / ".git" / "info").mkdir(exist_ok=True)
    (project / ".git" / "info" / "exclude").write_text("local.txt\n")
    write(project, "m.py", "local.txt", "glob.txt", gitignore="*.ckpt\n/sub/data/\nsecrets.json\n")
    write(project / "sub", "m.py", "local.txt", "glob.txt", "secrets.json", "w.ckpt", "data/d.csv")
    return project


def test_rules_hold_that_are_outside_the_submitted_folder(full: Path, way: str) -> None:
    assert way
    assert packed(full / "sub") == {"m.py"}
    assert packed(full) == {".gitignore", "m.py", "sub/m.py"}


def test_the_users_rules_may_be_anywhere(project: Path, home: Path) -> None:
    (home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/mine\n")
    (home / "mine").write_text("*.swp\n")
    write(project, "a.py", "a.swp")
    assert packed(project) == {"a.py"}
    (project / ".git" / "index").write_bytes(b"DIRC nonsense")
    assert packed(project) == {"a.py"}


def test_a_worktree_shares_the_rules_of_its_repository(
    full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(full, "add", "-A")
    run(full, "commit", "-qm", "first")
    run(full, "worktree", "add", "-q", str(tmp_path / "tree"))
    write(tmp_path / "tree", "local.txt", "glob.txt", "w.ckpt", "new.py")
    wanted = {".gitignore", "m.py", "sub/m.py", "new.py"}
    assert packed(tmp_path / "tree") == wanted
    assert _library(tmp_path / "tree", monkeypatch) == wanted


def test_what_git_tracks_is_packed_though_it_is_ignored(full: Path) -> None:
    write(full, "sub/keep.ckpt", "sub/data/kept.csv", ".env")
    run(full, "add", "-f", "sub/keep.ckpt", "sub/data/kept.csv", ".env")
    (full / "sub" / "data" / "empty").mkdir()
    listing = scan(full)
    names = {entry.name for entry in listing.entries}
    assert {"sub/keep.ckpt", "sub/data/kept.csv"} <= names
    assert not names & {"sub/data/d.csv", "sub/data/empty", ".env"}
    assert [one.path for one in listing.left_out] == [".env"]


def test_what_is_not_on_the_disk_is_not_packed(project: Path) -> None:
    write(project, "a.py", "gone.py", "far/b.py", "near/c.py")
    run(project, "add", "-A")
    run(project, "commit", "-qm", "first")
    (project / "gone.py").unlink()
    run(project, "sparse-checkout", "set", "near")
    assert packed(project) == {"a.py", "near/c.py"}


def test_repositories_inside_are_packed_by_their_own_rules(
    full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    run(inner, "init", "-q")
    write(inner, "i.py", "i.tmp", "i.ckpt", "deep/x.tmp", "deep/y.py", gitignore="*.tmp\n")
    run(inner, "add", "-A")
    run(inner, "commit", "-qm", "first")
    run(full, "submodule", "--quiet", "add", str(inner), "module")
    shutil.copytree(inner, full / "nested")
    shutil.copytree(inner, full / "out.ckpt")
    write(full / "module", "new.py", "new.tmp", "glob.txt")
    own = {".gitignore", "i.py", "i.ckpt", "deep/y.py"}
    wanted = {
        ".gitignore", ".gitmodules", "m.py", "sub/m.py", "module/new.py",
        *(f"module/{name}" for name in own), *(f"nested/{name}" for name in own),
    }  # fmt: skip
    assert packed(full) == wanted
    assert _library(full, monkeypatch) == wanted
    assert packed(full / "module") == {*own, "new.py"}
    shutil.rmtree(full / "module")
    (full / "module").mkdir()
    listing = scan(full)
    assert "module" in {entry.name for entry in listing.entries}
    assert listing.submodules == ("module",)


def test_folders_without_files_are_as_before(project: Path, way: str) -> None:
    assert way
    for name in ("empty/in", "out/in", "src"):
        (project / name).mkdir(parents=True)
    write(project, "logs/a.log", "src/x.py", gitignore="out/\n*.log\n")
    names = {entry.name for entry in scan(project).entries}
    assert names == {".gitignore", "empty", "empty/in", "src", "src/x.py"}


def test_forgeignore_comes_before_gits_rules(project: Path, way: str) -> None:
    assert way
    write(project, "a.pt", "small.pt", "data/x.csv", "data/y.tmp", "data/in/z.csv", "doc/a.md")
    write(project, "sub/small.pt", gitignore="*.pt\ndata/\n*.tmp\n")
    (project / ".forgeignore").write_text("!small.pt\n!data/\ndoc\n")
    (project / "sub" / ".gitignore").write_text("small.pt\n")
    if way == "git":
        run(project, "add", "-f", "doc/a.md")
    wanted = {"small.pt", "sub/small.pt", "data/x.csv", "data/in/z.csv"}
    assert packed(project) == wanted | {".gitignore", ".forgeignore", "sub/.gitignore"}


def test_a_folder_that_is_ignored_itself_is_packed_when_it_is_submitted(
    project: Path, home: Path, way: str
) -> None:
    assert way
    write(project, "build/a.py", "build/b.tmp", "build/.gitignore", gitignore="*\n!.gitignore\n")
    (project / "build" / ".gitignore").write_text("*.tmp\n")
    assert packed(project / "build") == {"a.py", ".gitignore"}
    # As a folder of settings in the home folder has it.
    run(home, "init", "-q")
    (home / ".gitignore").write_text("*\n")
    write(home / "code" / "mine", "t.py")
    assert packed(home / "code" / "mine") == {"t.py"}


def test_a_link_to_a_folder_is_no_folder_to_git(project: Path, way: str) -> None:
    assert way
    write(project, "real/a.py", gitignore="link/\n")
    (project / "link").symlink_to("real")
    assert "link" in {entry.name for entry in scan(project).entries}


def test_names_may_be_anything_that_a_disk_takes(project: Path) -> None:
    write(project, 'a "quoted" name', "tab\there", " lead", "-rf", "ü/ß", ":(glob)x", gitignore="")
    with pytest.raises(Exception, match="control character"):
        scan(project)
    (project / "tab\there").unlink()
    assert packed(project) == by_git(project)
    (project / os.fsdecode(b"caf\xe9")).touch()
    (project / "new\nline").touch()
    with pytest.raises(Exception, match="2 entries of the folder cannot be packed"):
        scan(project)
    (project / ".gitignore").write_bytes(b"caf\xe9\nnew?line\n")
    assert packed(project) == by_git(project)


def test_a_disk_that_ignores_case_may_write_a_tracked_name_differently(project: Path) -> None:
    write(project, "Readme", "src/a.py")
    run(project, "add", "-A")
    run(project, "config", "core.ignoreCase", "true")
    (project / "Readme").rename(project / "README")
    (project / "src").rename(project / "Src")
    assert packed(project) == {"README", "Src/a.py"}


class TestStrangers:
    """A repository of which nobody knows what it configures."""

    def test_no_program_of_it_is_run(self, project: Path, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        hook = tmp_path / "hook"
        hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
        hook.chmod(0o755)
        for key in (
            "core.fsmonitor",
            "core.sshCommand",
            "core.pager",
            "alias.ls-files",
            "core.editor",
        ):
            run(project, "config", key, str(hook))
        run(project, "config", "alias.ls-files", f"!{hook}")
        write(project, "a.py", gitignore="*.tmp\n")
        assert packed(project) == {".gitignore", "a.py"}
        assert not ran.exists()

    def test_a_folder_that_looks_like_a_repositorys_data_is_no_repository(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran, bare = tmp_path / "ran", tmp_path / "bare"
        bare.mkdir()
        run(bare, "init", "-q", "--bare")
        run(bare, "config", "core.fsmonitor", f"touch {ran}; false")
        run(bare, "config", "core.bare", "false")
        run(bare, "config", "core.worktree", str(bare))
        monkeypatch.setenv("GIT_TRACE", "1")
        assert {"HEAD", "config"} <= packed(bare)
        assert not ran.exists()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
    def test_anothers_repository_is_read_without_git_and_it_is_said(self, full: Path) -> None:
        run(full, "add", "-A")
        for path in (full, full / ".git"):
            os.chown(path, 65534, 65534)
        listing = scan(full)
        assert {entry.name for entry in listing.files} == {".gitignore", "m.py", "sub/m.py"}
        (fault,) = listing.faults
        assert "dubious ownership" in fault

    def test_what_a_hook_says_of_its_own_repository_is_not_heard(
        self, full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = tmp_path / "other"
        other.mkdir()
        run(other, "init", "-q")
        for name, value in (
            ("GIT_DIR", str(other / ".git")), ("GIT_WORK_TREE", str(other)),
            ("GIT_INDEX_FILE", str(other / "index")), ("GIT_LITERAL_PATHSPECS", "1"),
            ("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "core.excludesFile"),
            ("GIT_CONFIG_VALUE_0", "/dev/null"), ("GIT_CONFIG_PARAMETERS", "'core.bare'='true'"),
            ("GIT_COMMON_DIR", str(other)), ("GIT_PREFIX", "x/"),
        ):  # fmt: skip
            monkeypatch.setenv(name, value)
        assert packed(full) == {".gitignore", "m.py", "sub/m.py"}

    def test_a_broken_repository_is_read_without_git(self, full: Path) -> None:
        run(full, "add", "-A")
        (full / ".git" / "index").write_bytes(b"DIRC nonsense")
        listing = scan(full)
        assert {entry.name for entry in listing.files} == {".gitignore", "m.py", "sub/m.py"}
        assert len(listing.faults) == 1
