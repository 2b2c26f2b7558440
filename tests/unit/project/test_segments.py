"""Packing a large folder into segments, here of 16 KiB: an edit changes few of them."""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from forge_client.errors import InvalidInput
from forge_client.project import segments
from forge_client.project.bundle import scan
from forge_client.project.segments import pack_segments
from forge_schema import zstd
from forge_schema.model.bundles import list_digest
from forge_schema.model.stored import SegmentList, segments_in
from forge_worker.prepare.bundle import ArchiveLimits, extract_files
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from support import trees

if TYPE_CHECKING:
    from collections.abc import Callable

    from forge_client.uploads import Bundle

LIMIT = 1 << 30
MOST = 64 << 10
FILES = 400


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", MOST)
    monkeypatch.setattr(segments, "USUAL_BYTES", MOST // 4)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A megabyte in many files that cannot be compressed."""
    chance = random.Random(1)  # noqa: S311  no secret
    sizes = [chance.randrange(5000) for _ in range(FILES)]
    tree: trees.Tree = {
        f"part-{n % 7}/file-{n}.py": chance.randbytes(size) for n, size in enumerate(sizes)
    }
    trees.write(tmp_path / "project", tree)
    return tmp_path / "project"


def packed(folder: Path) -> tuple[Bundle, dict[str, bytes]]:
    """Pack a folder; return the bundle and the content of its segments."""
    with tempfile.TemporaryDirectory() as out:
        bundle = pack_segments(scan(folder), Path(out), limit_bytes=LIMIT)
        return bundle, {path.name: path.read_bytes() for path in Path(out).iterdir()}


def unpacked(bundle: Bundle, content: dict[str, bytes], into: Path) -> trees.Tree:
    with ExitStack() as held, tempfile.TemporaryDirectory() as folder:
        for name, data in content.items():
            Path(folder, name).write_bytes(data)
        files = [held.enter_context(Path(folder, s.sha256).open("rb")) for s in bundle.segments]
        extract_files(files, into, limits=ArchiveLimits())
        return trees.read(into)


def test_a_segment_is_named_by_its_sha256_and_the_bundle_by_their_list(project: Path) -> None:
    bundle, content = packed(project)
    assert len(bundle.segments) > 10
    for one in bundle.segments:
        assert hashlib.sha256(content[one.sha256]).hexdigest() == one.sha256
        assert len(content[one.sha256]) == one.bytes
        assert len(zstd.decompress(content[one.sha256])) <= MOST
    listed = SegmentList(segments=list(bundle.segments)).dumped()
    assert bundle.digest == list_digest(listed) != hashlib.sha256(listed).hexdigest()
    assert segments_in(listed, bundle.digest) == bundle.segments
    assert segments_in(listed + b" ", bundle.digest) == ()
    assert (bundle.files, bundle.size) == (FILES, sum(map(len, content.values())))


def test_the_same_tree_gives_the_same_segments(project: Path, tmp_path: Path) -> None:
    twin = tmp_path / "twin"
    trees.write(twin, dict(reversed(trees.read(project).items())))
    assert packed(twin)[1] == packed(project)[1]


def _edit(project: Path) -> None:
    (project / "part-3/file-150.py").write_bytes(os.urandom(4000))


def _grow(project: Path) -> None:
    with (project / "part-3/file-150.py").open("ab") as file:
        file.write(os.urandom(10_000))


def _add(project: Path) -> None:
    (project / "part-3/another.py").write_bytes(os.urandom(2000))


def _remove(project: Path) -> None:
    (project / "part-3/file-150.py").unlink()


def _rename(project: Path) -> None:
    (project / "part-3/file-150.py").rename(project / "part-3/other-150.py")


@pytest.mark.parametrize("change", [_edit, _grow, _add, _remove, _rename])
def test_a_change_of_one_file_changes_few_segments(
    project: Path, change: Callable[[Path], None]
) -> None:
    before = packed(project)[1]
    change(project)
    fresh = packed(project)[1].keys() - before.keys()
    assert 1 <= len(fresh) <= 3


def test_a_change_within_a_large_file_changes_one_segment(project: Path) -> None:
    large = project / "part-2/data.bin"
    large.write_bytes(os.urandom(10 * MOST))
    bundle, before = packed(project)
    with large.open("r+b") as file:
        file.seek(4 * MOST)
        file.write(b"changed")
    changed, after = packed(project)
    assert len(after.keys() - before.keys()) == 1
    assert len(changed.segments) == len(bundle.segments)


def test_a_file_that_changes_while_it_is_packed_is_refused(project: Path, tmp_path: Path) -> None:
    listing = scan(project)
    _edit(project)
    with pytest.raises(InvalidInput) as caught:
        pack_segments(listing, tmp_path, limit_bytes=LIMIT)
    assert caught.value.code == "file_changed"
    with pytest.raises(InvalidInput, match="more than the limit"):
        pack_segments(listing, tmp_path, limit_bytes=1000)


SIZES = st.sampled_from([0, 1, 511, 512, 513, MOST - 512, MOST - 1, MOST, MOST + 1, 3 * MOST])


@settings(max_examples=60, deadline=None)
@given(trees.trees(), st.lists(SIZES, max_size=4))
def test_what_is_packed_comes_out_again(tree: trees.Tree, sizes: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name, "in")
        root.mkdir()
        try:
            trees.write(root, tree)
            trees.write(root, {f"sized-{n}": os.urandom(size) for n, size in enumerate(sizes)})
            assume(not scan(root).left_out)
            bundle, content = packed(root)
        except (InvalidInput, OSError):
            reject()  # a tree that a disk cannot hold, or that a worker would refuse
        assert unpacked(bundle, content, Path(name, "out")) == trees.read(root)
