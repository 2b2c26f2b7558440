"""The worker's cache of bundles: shared by threads and processes, over a store that may err."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from forge_client.project.bundle import pack
from forge_schema.storage import KeyInvalid, ObjectMissing, Progress, keys
from forge_schema.storage.file_store import FileStore
from forge_worker.prepare.bundle import BundleCache, BundleCorrupt, BundleRefused
from support import trees

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROOMY = 1 << 30


class Counting(FileStore):
    """A file store that counts its downloads, and lets a test step in before each."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.downloads: list[str] = []
        self.before: Callable[[int], None] = lambda _number: None

    def get_file(self, key: str, path: Path, *, progress: Progress | None = None) -> None:
        self.downloads.append(key)
        self.before(len(self.downloads))
        super().get_file(key, path, progress=progress)


@pytest.fixture
def store(tmp_path: Path) -> Counting:
    return Counting(tmp_path / "store")


@pytest.fixture
def cache(store: Counting, tmp_path: Path) -> BundleCache:
    return BundleCache(store, tmp_path / "cache", ROOMY)


@pytest.fixture
def digest(store: Counting, tmp_path: Path) -> str:
    return upload(store, tmp_path, "print(1)")


def upload(store: FileStore, tmp_path: Path, code: str) -> str:
    trees.write(tmp_path / "project", {"train.py": code.encode(), "src/a.py": b""})
    bundle = pack(tmp_path / "project", tmp_path / "packed", limit_bytes=ROOMY)
    store.put_file(keys.bundle(bundle.digest), bundle.path, if_absent=True)
    return bundle.digest


def blob(store: FileStore, size: int) -> str:
    """Store something that is not an archive at all: the cache does not look inside."""
    data = os.urandom(size)
    digest = hashlib.sha256(data).hexdigest()
    store.put(keys.bundle(digest), data)
    return digest


def cached(cache: BundleCache) -> set[str]:
    return {path.name.partition(".")[0] for path in cache.root.glob("*.tar.zst")}


def arriving(cache: BundleCache) -> list[str]:
    return [path.name for path in (cache.root / "arriving").iterdir()]


def stored(store: FileStore, digest: str) -> Path:
    return store.root / keys.bundle(digest)


def test_a_bundle_is_downloaded_once(cache: BundleCache, store: Counting, digest: str) -> None:
    path = cache.fetch(digest)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    assert cache.fetch(digest) == path
    assert store.downloads == [keys.bundle(digest)]
    assert arriving(cache) == []


def test_unpack_gives_back_the_project(cache: BundleCache, digest: str, tmp_path: Path) -> None:
    cache.unpack(digest, tmp_path / "work")
    assert trees.read(tmp_path / "work") == {"train.py": b"print(1)", "src/a.py": b""}


def test_an_absent_bundle_is_missing(cache: BundleCache) -> None:
    with pytest.raises(ObjectMissing):
        cache.fetch("0" * 64)
    assert (cached(cache), arriving(cache)) == (set(), [])


def test_a_digest_is_not_a_path(cache: BundleCache) -> None:
    with pytest.raises(KeyInvalid):
        cache.fetch("../../etc/passwd")


def _flip(content: bytes) -> bytes:
    return content[:20] + bytes([content[20] ^ 1]) + content[21:]


@pytest.mark.parametrize(
    "damage",
    [_flip, lambda content: content[:-7], lambda content: content + b"more", lambda _content: b""],
    ids=["altered", "truncated", "extended", "emptied"],
)
def test_a_damaged_object_is_asked_for_twice_and_never_parsed(
    cache: BundleCache,
    store: Counting,
    digest: str,
    tmp_path: Path,
    damage: Callable[[bytes], bytes],
) -> None:
    path = stored(store, digest)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BundleCorrupt) as caught:
        cache.unpack(digest, tmp_path / "work")
    assert caught.value.code == "bundle_corrupt"
    assert caught.value.hint
    assert len(store.downloads) == 2
    assert not (tmp_path / "work").exists()
    assert (cached(cache), arriving(cache)) == (set(), [])


def test_a_download_damaged_on_its_way_is_made_good(
    cache: BundleCache, store: Counting, digest: str
) -> None:
    path = stored(store, digest)
    good = path.read_bytes()
    path.write_bytes(_flip(good))

    def repair(number: int) -> None:
        if number == 2:
            path.write_bytes(good)

    store.before = repair
    assert cache.fetch(digest).read_bytes() == good
    assert len(store.downloads) == 2


def test_a_damaged_copy_in_the_cache_is_replaced(
    cache: BundleCache, store: Counting, digest: str
) -> None:
    path = cache.fetch(digest)
    good = path.read_bytes()
    path.write_bytes(_flip(good))
    assert cache.fetch(digest).read_bytes() == good
    assert len(store.downloads) == 2


def test_a_sound_digest_does_not_make_a_sound_archive(
    cache: BundleCache, store: Counting, tmp_path: Path
) -> None:
    with pytest.raises(BundleRefused):
        cache.unpack(blob(store, 1000), tmp_path / "work")
    assert list((tmp_path / "work").iterdir()) == []


def test_the_longest_unused_goes_first(store: Counting, tmp_path: Path) -> None:
    cache = BundleCache(store, tmp_path / "cache", max_bytes=3000)
    one, two, three, four = (blob(store, 1000) for _ in range(4))
    for digest in (one, two, three, one, four):
        cache.fetch(digest)
    assert cached(cache) == {one, three, four}


def test_one_in_use_stays_however_full_it_is(store: Counting, tmp_path: Path) -> None:
    cache = BundleCache(store, tmp_path / "cache", max_bytes=1000)
    neighbour = BundleCache(store, tmp_path / "cache", max_bytes=1000)
    one, two, three = (blob(store, 1000) for _ in range(3))
    with cache.holding(one) as path:
        neighbour.fetch(two)
        neighbour.fetch(three)
        assert cached(cache) == {one, three}
        assert path.stat().st_size == 1000
    neighbour.fetch(two)
    assert cached(cache) == {two}


def test_one_larger_than_the_cache_can_still_be_used(store: Counting, tmp_path: Path) -> None:
    cache = BundleCache(store, tmp_path / "cache", max_bytes=10)
    assert cache.fetch(blob(store, 1000)).stat().st_size == 1000


def test_threads_that_want_the_same_share_one_download(
    cache: BundleCache, store: Counting, digest: str
) -> None:
    start = threading.Barrier(8)

    def fetch(_number: int) -> Path:
        start.wait()
        return cache.fetch(digest)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(fetch, range(8)))) == 1
    assert len(store.downloads) == 1


def test_threads_that_want_different_ones_in_a_small_cache_all_get_theirs(
    store: Counting, tmp_path: Path
) -> None:
    cache = BundleCache(store, tmp_path / "cache", max_bytes=2500)
    digests = [blob(store, 1000) for _ in range(6)]

    def use(number: int) -> None:
        digest = digests[number % len(digests)]
        with cache.holding(digest) as path:
            assert hashlib.sha256(path.read_bytes()).hexdigest() == digest

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(use, range(120)))
    cache.fetch(digests[0])
    assert len(cached(cache)) <= 2
    assert arriving(cache) == []


FETCH = """
import sys
from pathlib import Path
from forge_schema.storage.file_store import FileStore
from forge_worker.prepare.bundle import BundleCache

class Slow(FileStore):
    def get_file(self, key, path, *, progress=None):
        print("downloading", flush=True)
        sys.stdin.readline()
        super().get_file(key, path, progress=progress)

cache = BundleCache(Slow(Path(sys.argv[1])), Path(sys.argv[2]), 1 << 30)
print("ready", flush=True)
sys.stdin.readline()
print(cache.fetch(sys.argv[3]), flush=True)
"""


def _fetcher(store: FileStore, cache: BundleCache, digest: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", FETCH, str(store.root), str(cache.root), digest],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert _line(process) == "ready"
    return process


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def _go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def test_two_processes_at_once_share_one_download(
    cache: BundleCache, store: Counting, digest: str
) -> None:
    with _fetcher(store, cache, digest) as first, _fetcher(store, cache, digest) as second:
        _go_on(first)
        assert _line(first) == "downloading"
        _go_on(second)
        _go_on(first)
        assert _line(first) == _line(second) == str(cache.root / f"{digest}.tar.zst")
    assert (first.returncode, second.returncode) == (0, 0)
    assert arriving(cache) == []


def test_a_killed_process_does_not_keep_others_waiting(
    cache: BundleCache, store: Counting, digest: str
) -> None:
    with _fetcher(store, cache, digest) as first:
        _go_on(first)
        assert _line(first) == "downloading"
        first.kill()
    assert cache.fetch(digest).exists()


def test_what_a_killed_download_left_is_cleared_once_it_is_old(
    cache: BundleCache, digest: str
) -> None:
    old, fresh = cache.root / "arriving" / "old", cache.root / "arriving" / "fresh"
    for path in (old, fresh):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    cache.fetch(digest)
    assert arriving(cache) == ["fresh"]
