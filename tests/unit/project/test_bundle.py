"""Packing a folder: what goes in, what stays out, and the same bytes every time."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from forge_client.errors import ClientError, InvalidInput
from forge_client.project.bundle import Listing, pack, pack_listing, scan
from forge_client.project.listing import BundleEntry, sentence
from forge_client.project.submission import _packed
from forge_schema.model.bundles import SEGMENT_BYTES
from forge_worker.prepare.bundle import ArchiveLimits, extract
from hypothesis import assume, given, reject, settings
from support import trees

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forge_client.uploads import Bundle

LIMIT = 1 << 30


def names(listing: Listing) -> list[str]:
    return [entry.name + "/" * entry.folder for entry in listing.entries]


def packed(folder: Path, out: Path) -> Bundle:
    return pack(folder, out, limit_bytes=LIMIT)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    trees.write(root, {"train.py": b"print(1)\n", "src/model.py": b"x = 1\n", "data": None})
    return root


class TestPack:
    def test_the_digest_is_that_of_the_file(self, project: Path, tmp_path: Path) -> None:
        bundle = packed(project, tmp_path / "out" / "b.tar.zst")
        content = bundle.path.read_bytes()
        assert bundle.digest == hashlib.sha256(content).hexdigest()
        assert (bundle.size, bundle.files, bundle.unpacked_size) == (len(content), 2, 15)
        assert list(bundle.path.parent.iterdir()) == [bundle.path]

    def test_the_same_tree_gives_the_same_bytes(self, project: Path, tmp_path: Path) -> None:
        twin = tmp_path / "elsewhere" / "twin"
        before = os.umask(0o077)
        try:
            trees.write(twin, dict(reversed(trees.read(project).items())))
        finally:
            os.umask(before)
        os.utime(twin / "train.py", (1, 1))
        (twin / "src" / "model.py").chmod(0o664)
        one, two = packed(project, tmp_path / "1"), packed(twin, tmp_path / "2")
        assert one.digest == two.digest

    def test_any_change_of_the_tree_changes_the_digest(self, project: Path, tmp_path: Path) -> None:
        digests = [packed(project, tmp_path / "b").digest]
        for change in (
            lambda: (project / "train.py").write_bytes(b"print(2)\n"),
            lambda: (project / "train.py").chmod(0o755),
            lambda: (project / "train.py").rename(project / "main.py"),
            (project / "empty").mkdir,
        ):
            change()
            digests.append(packed(project, tmp_path / "b").digest)
        assert len(set(digests)) == 5

    def test_the_owners_execute_bit_is_kept(self, project: Path, tmp_path: Path) -> None:
        (project / "run.sh").write_bytes(b"")
        (project / "run.sh").chmod(0o700)
        extract(packed(project, tmp_path / "b").path, tmp_path / "out", limits=ArchiveLimits())
        assert (tmp_path / "out" / "run.sh").stat().st_mode & 0o777 == 0o755
        assert (tmp_path / "out" / "train.py").stat().st_mode & 0o777 == 0o644

    def test_progress_adds_up_to_the_size_known_before(self, project: Path, tmp_path: Path) -> None:
        (project / "big").write_bytes(os.urandom(3 << 20))
        listing, read = scan(project), list[int]()
        pack_listing(listing, tmp_path / "b", limit_bytes=LIMIT, progress=read.append)
        assert sum(read) == listing.total_bytes == (3 << 20) + 15
        assert len(read) > 10

    @settings(max_examples=60, deadline=None)
    @given(trees.trees())
    def test_what_is_packed_comes_out_again(self, tree: trees.Tree) -> None:
        with tempfile.TemporaryDirectory() as name:
            root = Path(name, "in")
            root.mkdir()
            try:
                trees.write(root, tree)
                assume(not scan(root).left_out)
                bundle = packed(root, Path(name, "b"))
            except (InvalidInput, OSError):
                reject()  # a tree that a disk cannot hold, or that a worker would refuse
            extract(bundle.path, Path(name, "out"), limits=ArchiveLimits())
            assert trees.read(Path(name, "out")) == trees.read(root)


class TestIgnored:
    def test_both_ignore_files_count_and_forgeignore_has_the_last_word(self, project: Path) -> None:
        (project / ".gitignore").write_text("*.pt\n/data/\n")
        (project / ".forgeignore").write_text("!small.pt\nsecret.env\n")
        trees.write(project, {"big.pt": b"", "small.pt": b"", "secret.env": b"", "data/x": b""})
        assert names(scan(project)) == [
            ".forgeignore", ".gitignore", "small.pt", "src/", "src/model.py", "train.py",
        ]  # fmt: skip

    def test_a_nested_file_overrides_those_above_and_holds_below_only(self, project: Path) -> None:
        (project / ".gitignore").write_text("*.log\n")
        trees.write(
            project,
            {"a.log": b"", "src/.gitignore": b"!keep.log\nmodel.py\n", "src/keep.log": b"",
             "src/b.log": b"", "model.py": b""},
        )  # fmt: skip
        assert names(scan(project)) == [
            ".gitignore", "data/", "model.py", "src/", "src/.gitignore", "src/keep.log", "train.py",
        ]  # fmt: skip

    @pytest.mark.parametrize("name", [".git", ".hg", ".venv", "__pycache__", ".forge"])
    def test_some_folders_never_go_in(self, project: Path, name: str) -> None:
        before = names(scan(project))
        (project / ".forgeignore").write_text(f"!{name}\n")
        trees.write(project, {f"{name}/x": b"", f"src/{name}/y": b""})
        assert names(scan(project)) == [".forgeignore", *before]

    def test_an_ignored_folder_is_not_even_looked_into(self, project: Path) -> None:
        (project / ".gitignore").write_text("runs/\n")
        (project / "runs").mkdir()
        (project / "runs" / "loop").symlink_to("/")
        assert "runs/" not in names(scan(project))

    def test_a_folder_of_ignored_files_only_stays_out(self, project: Path) -> None:
        before = packed(project, project.parent / "b").digest
        trees.write(project, {"src/__pycache__/x": b"", "logs/__pycache__/y": b""})
        assert packed(project, project.parent / "b").digest == before

    def test_windows_line_ends_and_a_byte_order_mark_are_read_over(self, project: Path) -> None:
        (project / ".gitignore").write_bytes(b"\xef\xbb\xbftrain.py\r\nsrc\r\n")
        assert names(scan(project)) == [".gitignore", "data/"]

    def test_a_line_that_is_no_pattern_is_named(self, project: Path) -> None:
        (project / "src" / ".forgeignore").write_text("ok\n!\n")
        with pytest.raises(ClientError, match=r"line 2 of .*src/\.forgeignore"):
            scan(project)


class TestLeftOut:
    @pytest.mark.parametrize(
        "name",
        [".env", ".env.local", "conf/.env", "tls.PEM", "deploy/host.key", "id_ed25519",
         ".aws/credentials", "home/.ssh/config", ".netrc", "kaggle.json", ".kaggle/kaggle.json",
         ".pypirc", ".git-credentials", "my-service-account-1.json"],
    )  # fmt: skip
    def test_credentials_stay_out_and_it_is_said(self, project: Path, name: str) -> None:
        before = names(scan(project))
        trees.write(project, {name: b"TOKEN=abc"})
        listing = scan(project)
        assert not {one for one in names(listing) if one.lower() == name.lower()}
        assert len(names(listing)) <= len(before) + name.count("/")
        (left,) = listing.left_out
        assert (name.startswith(left.path), left.why) == (True, "credentials")
        said = sentence(listing.left_out)
        assert said == (
            f"left out: {left.path} (credentials); use --secret, or --include {left.path}"
        )

    @pytest.mark.parametrize("name", [".env.example", ".env.sample", ".env.template", "env.py"])
    def test_what_only_looks_like_credentials_goes_in(self, project: Path, name: str) -> None:
        trees.write(project, {name: b"TOKEN="})
        listing = scan(project)
        assert (name in names(listing), listing.left_out) == (True, ())

    def test_what_is_included_by_name_goes_in_even_if_an_ignore_file_names_it(
        self, project: Path
    ) -> None:
        (project / ".gitignore").write_text(".env\n")
        trees.write(project, {".env": b"A=1", "certs/ca.pem": b"x", "certs/my.key": b"y"})
        listing = scan(project, include=[".env", "certs/*.pem"])
        assert {".env", "certs/ca.pem"} <= set(names(listing))
        assert [one.path for one in listing.left_out] == ["certs/my.key"]

    def test_patterns_that_include_nothing_are_named(self, project: Path) -> None:
        trees.write(project, {".env": b"A=1", ".aws/credentials": b"k"})
        wanted = [".env", "nosuch", ".aws/credentials"]
        assert scan(project, include=wanted).unmatched == ("nosuch", ".aws/credentials")
        assert scan(project, include=[".env", ".aws/"]).unmatched == ()

    def test_what_an_ignore_file_names_is_not_said(self, project: Path) -> None:
        (project / ".gitignore").write_text(".env\nvenv\n")
        trees.write(project, {".env": b"A=1", "venv/pyvenv.cfg": b""})
        assert scan(project).left_out == ()

    def test_environments_and_installed_packages_stay_out_whatever_their_names(
        self, project: Path
    ) -> None:
        trees.write(project, {"my env/pyvenv.cfg": b"", "my env/x": b"", "web/node_modules/y": b""})
        trees.write(project, {"web/index.js": b"", "conda/conda-meta/history": b""})
        listing = scan(project)
        assert "web/index.js" in names(listing)
        assert sentence(listing.left_out) == (
            "left out: conda/, my env/ (a virtual environment); web/node_modules/ (installed"
            " packages); --include conda/"
        )

    def test_a_link_to_credentials_does_not_bring_them_in(self, project: Path) -> None:
        trees.write(project, {".env": b"A=1"})
        (project / "settings").symlink_to(".env")
        listing = scan(project)
        assert "settings" not in names(listing)
        assert [one.path for one in listing.left_out] == [".env", "settings"]

    def test_the_bundle_of_a_folder_is_the_same_with_credentials_or_without(
        self, project: Path
    ) -> None:
        before = packed(project, project.parent / "b").digest
        trees.write(project, {".env": b"A=1"})
        assert packed(project, project.parent / "b").digest == before

    def test_what_is_to_be_included_has_to_be_a_pattern(self, project: Path) -> None:
        with pytest.raises(ClientError, match="--include: not a pattern"):
            scan(project, include=["!"])


class TestLinks:
    def test_relative_links_inside_stay_links(self, project: Path, tmp_path: Path) -> None:
        links: trees.Tree = {
            "main.py": "train.py",
            "lib": "src",
            "src/up.py": "../train.py",
            "src/deep/two.py": "../../lib/model.py",
            "chain": "lib",
            "data/here": ".." + "/src/deep",
            "é" * 60: "é" * 61,
            "é" * 61: "train.py",
            "x" * 120: "train.py",
        }
        trees.write(project, {"src/deep/file": b"", **links})
        before = packed(project, tmp_path / "b")
        extract(before.path, tmp_path / "out", limits=ArchiveLimits())
        found = trees.read(tmp_path / "out")
        assert {name: found[name] for name in links} == links
        assert packed(tmp_path / "out", tmp_path / "again").digest == before.digest
        # A list of packages that Forge adds does not come after them either.
        listing = scan(project)
        added = BundleEntry(".forge-lock.txt", project / "train.py", folder=False, size=9)
        added = replace(added, mtime_ns=(project / "train.py").stat().st_mtime_ns)
        whole = replace(listing, entries=(*listing.entries, added))
        pack_listing(whole, tmp_path / "whole", limit_bytes=LIMIT)
        extract(tmp_path / "whole", tmp_path / "with", limits=ArchiveLimits())
        assert trees.read(tmp_path / "with") == {**found, ".forge-lock.txt": b"print(1)\n"}

    @pytest.mark.parametrize(
        ("text", "stored"),
        [
            ("./train.py", "train.py"),
            ("src/../train.py", "train.py"),
            ("src//model.py", "src/model.py"),
            ("src/", "src"),
            ("through/../x.py", "src/x.py"),
        ],
    )
    def test_the_text_of_a_link_is_stored_plainly(
        self, project: Path, tmp_path: Path, text: str, stored: str
    ) -> None:
        trees.write(project, {"src/x.py": b"", "src/in/y.py": b"", "through": "src/in"})
        (project / "link").symlink_to(text)
        extract(packed(project, tmp_path / "b").path, tmp_path / "out", limits=ArchiveLimits())
        assert trees.read(tmp_path / "out")["link"] == stored

    def test_links_that_lead_elsewhere_become_what_they_lead_to(
        self, project: Path, tmp_path: Path
    ) -> None:
        """As before: an absolute one, one that leaves and returns, one to what is left out."""
        trees.write(project, {"big/a.csv": b"1", "big/b.csv": b"2", "big/deep/latest": "../a.csv"})
        (project / ".gitignore").write_text("/big/\n/hop\n")
        trees.write(project, {"hop": "src", "sample": "big/b.csv", "all": "big", "far": "hop"})
        (project / "lib").symlink_to(project / "src")
        (project / "back").symlink_to("../project/src/model.py")
        extract(packed(project, tmp_path / "b").path, tmp_path / "out", limits=ArchiveLimits())
        assert trees.read(tmp_path / "out") == {
            ".gitignore": b"/big/\n/hop\n",
            "train.py": b"print(1)\n", "src/model.py": b"x = 1\n", "data": None,
            "lib/model.py": b"x = 1\n", "back": b"x = 1\n", "sample": b"2", "far": "src",
            "all/a.csv": b"1", "all/b.csv": b"2", "all/deep/latest": b"1",
        }  # fmt: skip

    def test_all_that_cannot_be_packed_is_named_at_once(self, project: Path) -> None:
        trees.write(project, {"a": "/etc/passwd", "src/b": "/nowhere", "c\n": b"", "loop": "."})
        # Emacs', while a file has unsaved changes.
        trees.write(project, {"src/.#b": "ann@lab.123:1700000000"})
        os.mkfifo(project / "src" / "pipe")
        with pytest.raises(InvalidInput, match="5 entries of the folder cannot") as caught:
            scan(project)
        told = caught.value.message
        assert told.splitlines()[1:] == [
            f"  a is a link to /etc/passwd, outside {project}",
            "  'c\\n' has a backslash or a control character",
            "  loop is a circular link",
            f"  src/b is a link to /nowhere, outside {project}",
            "  src/pipe is neither a file nor a folder",
        ]
        assert ".forgeignore" in caught.value.hint

    def test_links_that_lead_nowhere_are_left_out(self, project: Path) -> None:
        """As a checkout has them of what nobody fetched, such as Kaldi's `steps` and `utils`."""
        trees.write(project, {"recipe/steps": "../../kaldi/steps", "loop": "loop", "gone": "x/y"})
        listing = scan(project)
        assert not {"recipe", "recipe/steps", "loop", "gone"} & set(names(listing))
        assert sentence(listing.left_out) == "left out: gone, loop, recipe/steps (broken links)"

    def test_the_folder_itself_may_be_a_link(self, project: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(project)
        assert names(scan(tmp_path / "link")) == names(scan(project))

    @pytest.mark.parametrize(
        ("target", "code"),
        [
            ("/etc/passwd", "link_leaves_folder"),
            ("../outside", "link_leaves_folder"),
            ("src/../../outside", "link_leaves_folder"),
            ("/", "link_leaves_folder"),
            ("/nowhere", "link_leaves_folder"),
            (".", "link_circular"),
            (".git/config", "link_leaves_folder"),
            (".git/annex/objects/k", "link_leaves_folder"),
            (".git/annex/objects/not/fetched", "link_broken"),
        ],
    )
    def test_other_links_are_refused_by_name(self, project: Path, target: str, code: str) -> None:
        trees.write(project.parent, {"outside": b"secret", "project/.git/config": b"secret"})
        trees.write(project, {".git/annex/objects/k": b"data"})
        (project / "link").symlink_to(target)
        with pytest.raises(InvalidInput, match=r"link is a (link|broken|circular)") as caught:
            scan(project)
        assert caught.value.code == code
        assert ".forgeignore" in caught.value.hint
        assert ("git annex unlock" in caught.value.hint) is ("annex" in target)


class TestRefused:
    def test_no_such_folder(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput, match=r"folder .*nowhere does not exist") as caught:
            scan(tmp_path / "nowhere")
        assert (caught.value.code, caught.value.exit_code) == ("folder_missing", 2)

    def test_not_a_folder(self, project: Path) -> None:
        with pytest.raises(InvalidInput, match="not a folder") as caught:
            scan(project / "train.py")
        assert caught.value.code == "not_a_folder"

    def test_too_large_names_the_biggest_files(self, project: Path, tmp_path: Path) -> None:
        trees.write(project, {"data/weights.bin": b"x" * 5_000_000, "notes": b"x" * 2048})
        with pytest.raises(InvalidInput) as caught:
            pack(project, tmp_path / "b", limit_bytes=1_000_000)
        assert caught.value.code == "bundle_too_large"
        assert "data/weights.bin (4.8 MiB), notes (2 KiB)" in caught.value.message
        assert ".forgeignore" in caught.value.hint
        assert not (tmp_path / "b").exists()

    def test_the_limit_itself_is_allowed(self, project: Path, tmp_path: Path) -> None:
        assert pack(project, tmp_path / "b", limit_bytes=15).unpacked_size == 15
        with pytest.raises(InvalidInput):
            pack(project, tmp_path / "b", limit_bytes=14)

    def test_a_file_that_grows_while_packed(self, project: Path, tmp_path: Path) -> None:
        self._expect_changed(project, tmp_path, lambda path: path.write_bytes(b"x" * 9_000_000))

    def test_a_file_that_shrinks_while_packed(self, project: Path, tmp_path: Path) -> None:
        self._expect_changed(project, tmp_path, lambda path: os.truncate(path, 5))

    def test_a_file_rewritten_while_packed(self, project: Path, tmp_path: Path) -> None:
        self._expect_changed(project, tmp_path, lambda path: path.write_bytes(b"y" * 5_000_000))

    def _expect_changed(self, project: Path, tmp_path: Path, change: object) -> None:
        path = project / "log"
        path.write_bytes(b"x" * 5_000_000)
        os.utime(path, (1, 1))
        reads: list[int] = []

        def meanwhile(read: int) -> None:
            if not reads:
                assert callable(change)
                change(path)
            reads.append(read)

        with pytest.raises(InvalidInput, match="log changed") as caught:
            pack(project, tmp_path / "b", limit_bytes=LIMIT, progress=meanwhile)
        assert caught.value.code == "file_changed"
        assert sorted(tmp_path.iterdir()) == [project]

    @pytest.mark.parametrize("size", [1, SEGMENT_BYTES])
    def test_the_place_where_it_could_not_be_packed_is_named(
        self, project: Path, tmp_path: Path, size: int
    ) -> None:
        (tmp_path / "full").write_text("no folder")
        with (project / "more").open("wb") as file:
            file.truncate(size)
        with pytest.raises(ClientError, match=f"cannot be packed in {tmp_path}: ") as caught:
            _packed(scan(project), tmp_path / "full", 1 << 30, lambda _: None)
        assert "TMPDIR" in caught.value.hint

    def test_a_file_that_disappears_before_it_is_packed(
        self, project: Path, tmp_path: Path
    ) -> None:
        listing = scan(project)
        (project / "train.py").unlink()
        with pytest.raises(InvalidInput, match=r"train\.py disappeared"):
            pack_listing(listing, tmp_path / "b", limit_bytes=LIMIT)

    def test_a_socket(self, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(project)  # a socket's path must be short
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("s.sock")
            with pytest.raises(InvalidInput, match=r"s\.sock is neither"):
                scan(project)

    @pytest.mark.parametrize(
        "name", [b"a\\b", b"a\nb", b"\xff", b"aux.txt", b"NUL", b"Com1.log", b"x/con /y"]
    )
    def test_a_name_that_a_worker_would_refuse(self, project: Path, name: bytes) -> None:
        (project / os.fsdecode(name)).mkdir(parents=True)
        with pytest.raises(InvalidInput) as caught:
            scan(project)
        assert caught.value.code == "name_refused"

    def test_names_that_differ_by_case_only(self, project: Path) -> None:
        trees.write(project, {"README": b"", "readme": b""})
        with pytest.raises(InvalidInput, match="README and readme"):
            scan(project)

    def test_folders_too_deep(self, project: Path) -> None:
        (project / ("d/" * 70)).mkdir(parents=True)
        with pytest.raises(InvalidInput, match="64 folders deep"):
            scan(project)


@pytest.fixture
def nobodys() -> Iterator[Path]:
    """Return a folder of a user without rights, and act as that user: root may read anything."""
    with tempfile.TemporaryDirectory() as name:
        root = os.geteuid() == 0
        if root:
            os.chown(name, 65534, 65534)
            os.seteuid(65534)
        try:
            yield Path(name)
        finally:
            if root:
                os.seteuid(0)


def test_an_unreadable_file_is_named(nobodys: Path) -> None:
    trees.write(nobodys, {"in/open": b"x", "in/shut": b"x"})
    (nobodys / "in" / "shut").chmod(0)
    with pytest.raises(InvalidInput, match="shut cannot be read: Permission denied") as caught:
        packed(nobodys / "in", nobodys / "b")
    assert caught.value.code == "file_unreadable"
    assert not (nobodys / "b").exists()


def test_an_unreadable_folder_is_named(nobodys: Path) -> None:
    trees.write(nobodys, {"in/open": b"x", "in/shut/x": b"x"})
    (nobodys / "in" / "shut").chmod(0)
    with pytest.raises(InvalidInput, match=r"shut.* cannot be read: Permission denied"):
        scan(nobodys / "in")
    (nobodys / "in" / "shut").chmod(0o700)


def test_the_file_that_this_command_writes_its_output_to_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    code = (
        "import sys; from pathlib import Path; from forge_client.project.bundle import scan;"
        "print([one.name for one in scan(Path(sys.argv[1])).entries], file=sys.stderr)"
    )
    with (tmp_path / "log.txt").open("w") as log:
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            stdout=log,
            stderr=subprocess.PIPE,
            text=True,
            check=True,
        )
    assert done.stderr == "['train.py']\n"
