"""A project that has not changed is known by the times of its files, without their content."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from forge_client import default_paths
from forge_client.project import listing as listing_module
from forge_client.project.bundle import pack_listing, packed_before, remember, scan
from forge_client.project.listing import SETTLED_NS
from support import trees

if TYPE_CHECKING:
    from forge_client.project.bundle import Listing
    from forge_client.uploads import Bundle

LIMIT = 1 << 30


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The tests' own folder may be in memory.
    monkeypatch.setattr(listing_module, "_in_memory", lambda _folder: False)
    root = tmp_path / "project"
    trees.write(root, {"train.py": b"print(1)\n", "src/model.py": b"x = 1\n", "data": None})
    return root


def scanned_later(folder: Path) -> Listing:
    """List a folder as if its clock had gone on since its files were written."""
    listing = scan(folder)
    return replace(listing, at_ns=listing.at_ns + 2 * SETTLED_NS)


def noted(listing: Listing, out: Path) -> Bundle:
    bundle = pack_listing(listing, out, limit_bytes=LIMIT)
    remember(listing, bundle)
    return bundle


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="no tmpfs")  # noqa: S108 - asked
def test_a_folder_in_memory_has_no_fingerprint() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        assert scanned_later(Path(folder)).fingerprint is None


def test_what_has_not_changed_is_known_without_its_content(project: Path, tmp_path: Path) -> None:
    listing = scanned_later(project)
    assert packed_before(listing) is None
    bundle = noted(listing, tmp_path / "b")
    assert packed_before(scanned_later(project)) == replace(bundle, path=Path())


@pytest.mark.parametrize("change", ["content", "mode", "name", "link", "more"])
def test_each_change_makes_it_another(project: Path, tmp_path: Path, change: str) -> None:
    (project / "link").symlink_to("train.py")
    listing = scanned_later(project)
    noted(listing, tmp_path / "b")
    file = project / "train.py"
    times = file.stat()
    match change:
        case "content":
            # Same size, and the same times as far as a program can set them.
            file.write_bytes(b"print(2)\n")
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        case "mode":
            file.chmod(0o755)
        case "name":
            (project / "data").rename(project / "other")
        case "link":
            (project / "link").unlink()
            (project / "link").symlink_to("src/model.py")
        case "more":
            (project / "more").mkdir()
    assert packed_before(scanned_later(project)) is None


@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "in memory"])
def test_files_that_may_change_unseen_are_packed(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fresh: bool
) -> None:
    monkeypatch.setattr(listing_module, "_in_memory", lambda _folder: not fresh)
    listing = scan(project) if fresh else scanned_later(project)
    noted(listing, tmp_path / "b")
    assert packed_before(listing) is None


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'["a", 1, 2, 3, [[]]]', b"\xff", b"7"])
def test_a_damaged_note_counts_as_absent(project: Path, tmp_path: Path, content: bytes) -> None:
    listing = scanned_later(project)
    noted(listing, tmp_path / "b")
    fingerprint = listing.fingerprint
    assert fingerprint
    (note,) = default_paths.packed().rglob(fingerprint)
    note.write_bytes(content)
    assert packed_before(listing) is None
