"""Large bundles on a worker: only segments that are not cached are fetched, each verified."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest
from forge_client.project import segments
from forge_client.project.bundle import scan
from forge_client.project.segments import pack_segments
from forge_schema.model.stored import SegmentList
from forge_schema.storage import ObjectMissing, Progress, keys
from forge_schema.storage.file_store import FileStore
from forge_worker.prepare.bundle import ArchiveLimits, BundleCache, BundleCorrupt, BundleRefused
from support import trees

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from forge_schema.storage import Piece

SEGMENT = 32 << 10
ROOMY = 1 << 30


class Counting(FileStore):
    """A file store that records downloads, and objects that are expected."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.fetched: list[str] = []
        self.expected: list[str] = []

    def expect(self, *, puts: Sequence[Piece] = (), gets: Sequence[str] = ()) -> None:
        assert not puts
        self.expected += gets

    def get_file(self, key: str, path: Path, *, progress: Progress | None = None) -> None:
        self.fetched.append(key)
        super().get_file(key, path, progress=progress)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", SEGMENT)
    monkeypatch.setattr(segments, "USUAL_BYTES", SEGMENT // 4)


@pytest.fixture
def store(tmp_path: Path) -> Counting:
    return Counting(tmp_path / "store")


@pytest.fixture
def cache(store: Counting, tmp_path: Path) -> BundleCache:
    return BundleCache(store, tmp_path / "cache", ROOMY)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    trees.write(tmp_path / "project", {f"src/{n}.py": os.urandom(1000) for n in range(200)})
    return tmp_path / "project"


def upload(store: FileStore, project: Path) -> tuple[str, list[str]]:
    """Store a project in segments; return the bundle's digest, and the segments' keys."""
    out = project.parent / "packed"
    out.mkdir(exist_ok=True)
    bundle = pack_segments(scan(project), out, limit_bytes=ROOMY)
    listed = SegmentList(segments=list(bundle.segments)).dumped()
    for one in bundle.segments:
        store.put_file(keys.segment(one.sha256), out / one.sha256)
    store.put(keys.bundle(bundle.digest), listed)
    return bundle.digest, [keys.segment(one.sha256) for one in bundle.segments]


def test_after_an_edit_only_the_changed_segments_are_fetched(
    cache: BundleCache, store: Counting, project: Path, tmp_path: Path
) -> None:
    first, before = upload(store, project)
    cache.unpack(first, tmp_path / "one")
    assert sorted(store.fetched) == sorted([keys.bundle(first), *before])
    assert sorted(store.expected) == sorted(before)
    (project / "src/77.py").write_bytes(b"changed")
    second, after = upload(store, project)
    store.fetched.clear()
    store.expected.clear()
    cache.unpack(second, tmp_path / "two")
    assert sorted(store.expected) == sorted({*after} - {*before})
    assert sorted(store.fetched) == sorted([keys.bundle(second), *store.expected])
    assert len(store.fetched) <= 3
    assert trees.read(tmp_path / "two") == trees.read(project)
    store.fetched.clear()
    cache.unpack(second, tmp_path / "three")
    assert store.fetched == []


def test_a_cache_that_is_smaller_than_the_bundle_is_enough(
    store: Counting, project: Path, tmp_path: Path
) -> None:
    cache = BundleCache(store, tmp_path / "cache", max_bytes=3 * SEGMENT)
    digest, _ = upload(store, project)
    cache.unpack(digest, tmp_path / "work")
    assert trees.read(tmp_path / "work") == trees.read(project)
    kept = sum(path.stat().st_size for path in cache.root.glob("*.tar.zst"))
    assert kept <= 4 * SEGMENT


def _alter(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])


def _shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("harm", [_alter, _shorten])
def test_a_damaged_segment_is_fetched_twice_and_nothing_is_unpacked(
    cache: BundleCache,
    store: Counting,
    project: Path,
    tmp_path: Path,
    harm: Callable[[Path], None],
) -> None:
    digest, stored = upload(store, project)
    harm(store.root / stored[3])
    with pytest.raises(BundleCorrupt, match=stored[3]):
        cache.unpack(digest, tmp_path / "work")
    assert store.fetched.count(stored[3]) == 2
    assert not (tmp_path / "work").exists()


def test_a_cached_segment_that_is_damaged_is_fetched_again(
    cache: BundleCache, store: Counting, project: Path, tmp_path: Path
) -> None:
    digest, stored = upload(store, project)
    cache.unpack(digest, tmp_path / "one")
    store.fetched.clear()
    _alter(cache.root / f"{stored[3].split('/')[-1].partition('.')[0]}.tar.zst")
    cache.unpack(digest, tmp_path / "two")
    assert store.fetched == [stored[3]]
    assert trees.read(tmp_path / "two") == trees.read(project)


def test_a_missing_segment_is_told(
    cache: BundleCache, store: Counting, project: Path, tmp_path: Path
) -> None:
    digest, stored = upload(store, project)
    store.delete(stored[3])
    with pytest.raises(ObjectMissing, match=stored[3]):
        cache.unpack(digest, tmp_path / "work")


def test_the_limits_count_for_the_whole_bundle(
    cache: BundleCache, store: Counting, project: Path, tmp_path: Path
) -> None:
    digest, _ = upload(store, project)
    for limits in (ArchiveLimits(total_bytes=150_000), ArchiveLimits(entries=150)):
        with pytest.raises(BundleRefused, match=r"more than (146 KiB|150 files)"):
            cache.unpack(digest, tmp_path / "work", limits=limits)
        assert list((tmp_path / "work").iterdir()) == []


def test_a_list_under_its_sha256_is_no_list(
    cache: BundleCache, store: Counting, project: Path, tmp_path: Path
) -> None:
    digest, _ = upload(store, project)
    listed = store.get(keys.bundle(digest))
    uploaded = hashlib.sha256(listed).hexdigest()
    store.put(keys.bundle(uploaded), listed)
    with pytest.raises(BundleRefused):
        cache.unpack(uploaded, tmp_path / "work")
