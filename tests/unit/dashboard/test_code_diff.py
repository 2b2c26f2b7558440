"""The diff of two jobs' code: that of difflib, and within limits whatever the bundles hold."""

from __future__ import annotations

import difflib
import io
import random
import tarfile
import tracemalloc
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from forge_client.project import segments
from forge_client.project.bundle import scan
from forge_client.project.segments import pack_segments
from forge_functions.dashboard.routes.runs import code_diff as page
from forge_schema import zstd
from forge_schema.code import TooDifferent, differences
from forge_schema.model.stored import SegmentList
from forge_schema.storage import keys, open_store
from support import archives, trees

if TYPE_CHECKING:
    from pathlib import Path

    from forge_schema.storage import Store

TEXTS = ["", "a\n", "a\nb\nc\n" * 9, "b\n" + "a\nb\nc\n" * 9, "c\n" + "a\nb\n" * 14, "x\n" * 30]


def bundle(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return zstd.compress(packed.getvalue())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store((tmp_path / "store").as_uri())


Telling = Callable[[bytes, bytes], page.CodeDiff]


@pytest.fixture
def told(store: Store) -> Telling:
    """Return the difference of two bundles."""

    def diff(first: bytes, second: bytes) -> page.CodeDiff:
        store.put(keys.bundle("a" * 64), first)
        store.put(keys.bundle("b" * 64), second)
        return page.code_diff(store, "a" * 64, "b" * 64)

    return diff


@pytest.mark.parametrize("old", TEXTS)
def test_a_text_differs_as_difflib_has_it(old: str) -> None:
    for new in TEXTS:
        found = differences("f", old.encode(), new.encode())
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "a/f", "b/f", lineterm="")
        assert [*found] == [*lines]


def test_links_differ_by_where_they_lead(told: Telling) -> None:
    files = [archives.member("a", b"x"), archives.member("b", b"x"), archives.folder("d")]

    def linked(*targets: str) -> bytes:
        links = (
            archives.member(f"last{n}", type=tarfile.SYMTYPE, linkname=target)
            for n, target in enumerate(targets)
        )
        return archives.archive(*files, *links)

    found = told(linked("a", "d"), linked("b", "d"))
    (changed,) = found.files
    assert changed.lines == [
        "--- a/last0", "+++ b/last0", "@@ -1 +1 @@", "-link to a", "+link to b",
    ]  # fmt: skip


def test_a_bomb_is_not_unpacked(told: Telling) -> None:
    bomb = bundle(big=bytes(page.UNPACKED + 1))
    assert len(bomb) < 100_000
    tracemalloc.start()
    found = told(bomb, bundle(a=b"a"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.large
    assert peak < page.UNPACKED


def test_texts_that_take_too_long_are_left_to_the_command(
    told: Telling, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TooDifferent):
        list(differences("f", b"a\nb", b"b\nc", late=lambda: True))
    two = bundle(a=b"a\nb", b=b"1"), bundle(a=b"b\nc", b=b"2")
    asked = iter([False, True, True])
    monkeypatch.setattr(page, "_is_late", lambda _end: next(asked))
    found = told(*two)
    assert found.files == [page.Changed("a", [], cut=True)]
    assert found.left_off == 1


def test_a_page_has_a_part_of_a_long_diff(told: Telling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "LINES", 5)
    first = bundle(a=b"a\n" * 9, b=b"b")
    found = told(first, bundle(a=b"x" * 999, b=b"c"))
    ((name, lines, cut),) = ((one.name, one.lines, one.cut) for one in found.files)
    assert (name, len(lines), cut, found.left_off) == ("a", 5, True, 1)
    assert told(bundle(), bundle(a=b"x" * 999)).files[0].lines[3] == f"+{'x' * 399}…"


@pytest.mark.parametrize("damaged", [b"{}", zstd.compress(b"no tar"), bundle(a=b"1")[:-9]])
def test_what_is_no_bundle_is_said(told: Telling, damaged: bytes) -> None:
    assert told(bundle(a=b"1"), damaged) == page.CodeDiff(unread=True)


def stored_in_segments(store: Store, folder: Path, out: Path) -> str:
    """Store a folder as a bundle of segments of 64 KiB, and return its digest."""
    out.mkdir()
    packed = pack_segments(scan(folder), out, limit_bytes=1 << 30)
    for one in packed.segments:
        store.put(keys.segment(one.sha256), (out / one.sha256).read_bytes())
    listed = SegmentList(segments=list(packed.segments)).dumped()
    store.put(keys.bundle(packed.digest), listed)
    return packed.digest


def test_of_large_bundles_only_the_segments_that_differ_are_read(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 64 << 10)
    monkeypatch.setattr(segments, "USUAL_BYTES", 16 << 10)
    folder, chance = tmp_path / "project", random.Random(1)  # noqa: S311  no secret
    data: trees.Tree = {f"data/{n}": chance.randbytes(4000) for n in range(100)}
    trees.write(folder, data | {"large": chance.randbytes(200_000), "train.py": b"lr = 1\n"})
    before = stored_in_segments(store, folder, tmp_path / "a")
    (folder / "train.py").write_bytes(b"lr = 2\n")
    (folder / "data" / "new").write_bytes(b"1\n")
    after = stored_in_segments(store, folder, tmp_path / "b")
    # Less than all of it.
    monkeypatch.setattr(page, "PACKED", 256 << 10)
    files = {one.name: one.lines for one in page.code_diff(store, before, after).files}
    assert files["train.py"][-2:] == ["-lr = 1", "+lr = 2"]
    assert files["data/new"][-1] == "+1"
    assert len(files) == 2
    # A part of a file says nothing about the others.
    (folder / "large").write_bytes(chance.randbytes(200_000))
    assert page.code_diff(
        store, after, stored_in_segments(store, folder, tmp_path / "c")
    ) == page.CodeDiff(large=True)
