"""Reading in folders whose owner is malicious."""

from __future__ import annotations

import os
import secrets
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from forge_worker.files.safe_files import listing, opened, remove_tree, touch, weight
from hypothesis import given, settings
from hypothesis import strategies as st
from support import trees

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEEP = 1500
NO_FILE = "symbolic links|Not a directory|not a regular file|No such file"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("secret")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "root"
    folder.mkdir()
    yield folder
    # pytest's own clean-up gives up on a tree as deep as some of these.
    remove_tree(folder)


def dig(folder: Path, depth: int) -> None:
    """Make a chain of folders deeper than the longest path, with a file at its end."""
    place = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deep", dir_fd=place)
        inner = os.open("deep", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(os.open("end", os.O_CREAT | os.O_WRONLY, dir_fd=place))
    os.close(place)


@settings(max_examples=50, deadline=None)
@given(tree=trees.trees())
def test_listing_has_every_file_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, tree: trees.Tree
) -> None:
    folder = tmp_path_factory.mktemp("tree")
    for path, data in tree.items():
        # An entry that collides with an earlier one, as file and folder do, is left out.
        with suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
            trees.write(folder, {path: data})
    files = {path: data for path, data in trees.read(folder).items() if data is not None}
    found = listing(folder)
    assert {path: size for path, (size, _, _) in found.items()} == {
        path: len(data) for path, data in files.items()
    }
    for path, data in files.items():
        with opened(folder, path) as file:
            assert file.read() == data
    assert remove_tree(folder)


def test_links_and_other_things_are_not_listed(root: Path, outside: Path) -> None:
    (root / "file").write_text("x")
    (root / "to-file").symlink_to(outside / "secret")
    (root / "to-folder").symlink_to(outside)
    (root / "to-itself").symlink_to(root)
    (root / "dangling").symlink_to("/no/such/place")
    os.mkfifo(root / "pipe")
    assert list(listing(root)) == ["file"]
    assert weight(root) < 1 << 20


@pytest.mark.parametrize(
    "relative",
    ["to-file", "to-folder/secret", "folder/to-file", "folder/up/secret", "pipe", "folder", "no"],
)
def test_what_is_behind_a_link_is_not_opened(root: Path, outside: Path, relative: str) -> None:
    (root / "folder").mkdir()
    (root / "to-file").symlink_to(outside / "secret")
    (root / "to-folder").symlink_to(outside)
    (root / "folder" / "to-file").symlink_to(outside / "secret")
    (root / "folder" / "up").symlink_to("../../outside")
    os.mkfifo(root / "pipe")
    with pytest.raises(OSError, match=NO_FILE), opened(root, relative):
        pass


def test_folder_that_turns_into_a_link_under_the_walk_leads_nowhere(
    root: Path, outside: Path
) -> None:
    (root / "a").mkdir()
    (root / "a" / "mine").write_text("mine")
    ended = threading.Event()

    def swap() -> None:
        while not ended.is_set():
            (root / "a").rename(root / "b")
            (root / "a").symlink_to(outside)
            (root / "a").unlink()
            (root / "b").rename(root / "a")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(3000):
            assert not [path for path in listing(root) if path.endswith("secret")]
            try:
                with opened(root, "a/secret") as file:
                    pytest.fail(f"read {file.read()!r}")
            except OSError:
                continue
    finally:
        ended.set()
        swapping.join()


def test_root_that_is_a_link_is_not_entered(root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside)
    assert listing(root / "link") == {}
    with pytest.raises(OSError, match=NO_FILE), opened(root / "link", "secret"):
        pass
    touch(root / "link", "made")
    assert not (outside / "made").exists()


def test_touch_makes_a_file_once_and_follows_no_link(root: Path, outside: Path) -> None:
    touch(root, "new")
    assert (root / "new").read_bytes() == b""
    (root / "kept").write_text("x")
    touch(root, "kept")
    assert (root / "kept").read_text() == "x"
    (root / "link").symlink_to(outside / "made")
    touch(root, "link")
    assert not (outside / "made").exists()
    os.mkfifo(root / "pipe")
    touch(root, "pipe")
    touch(root / "no", "file")


def test_weight_counts_what_lies_on_the_disk(root: Path) -> None:
    (root / "full").write_bytes(secrets.token_bytes(3 << 20))
    with (root / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    assert 3 << 20 <= weight(root) < 4 << 20


def test_file_of_two_names_weighs_once(root: Path) -> None:
    (root / "one").write_bytes(secrets.token_bytes(3 << 20))
    (root / "other").hardlink_to(root / "one")
    assert 3 << 20 <= weight(root) < 4 << 20


def test_chain_of_folders_without_end_is_walked_and_removed(root: Path) -> None:
    dig(root, DEEP)
    (root / "file").write_text("x")
    assert list(listing(root)) == ["file"]
    assert weight(root) > 0
    assert remove_tree(root)


def test_removal_follows_no_link_and_opens_closed_folders(root: Path, outside: Path) -> None:
    inner = root / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    (inner / "link").symlink_to(outside)
    (root / "to-file").symlink_to(outside / "secret")
    os.mkfifo(root / "pipe")
    inner.chmod(0)
    (root / "a").chmod(0)
    root.chmod(0)
    assert remove_tree(root)
    assert (outside / "secret").read_text() == "secret"


@settings(max_examples=50, deadline=None)
@given(names=st.sets(st.binary(min_size=1, max_size=40), max_size=8))
def test_removal_takes_names_of_any_bytes(
    tmp_path_factory: pytest.TempPathFactory, names: set[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("odd")
    for name in names - {b".", b".."}:
        if b"/" not in name and b"\0" not in name:
            os.close(os.open(os.fsencode(folder) + b"/" + name, os.O_CREAT))
    assert remove_tree(folder)


def test_removal_of_what_is_not_there_is_done(tmp_path: Path) -> None:
    assert remove_tree(tmp_path / "no")
