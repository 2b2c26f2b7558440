"""The contract that the stores share: every test runs on a folder and on S3."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from forge_schema.storage import KeyInvalid, ObjectMissing, Store, StoredObject, open_store
from support.store.storage import Bucket, Proxy, needs_conditions, proxy, use_credentials

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LARGE = 17 << 20  # three parts in S3


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    use_credentials(monkeypatch)


@pytest.fixture
def flaky(bucket: Bucket) -> Iterator[Proxy]:
    with proxy(bucket.endpoint) as running:
        yield running


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "file":
        return open_store((tmp_path / "store").as_uri())
    return open_store(request.getfixturevalue("bucket").url())


@pytest.fixture(params=["file", "s3"])
def contested(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Return a store whose conditional writes are atomic, as those of moto alone are not."""
    if request.param == "file":
        return open_store((tmp_path / "store").as_uri())
    proxied: Proxy = request.getfixturevalue("flaky")
    return open_store(request.getfixturevalue("bucket").url(proxied.url))


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(LARGE))
    return path


class TestContract:
    def test_what_was_put_is_got(self, store: Store) -> None:
        assert store.put("a/b.json", b"one")
        assert store.get("a/b.json") == b"one"
        assert store.size("a/b.json") == 3

    def test_an_empty_object_is_an_object(self, store: Store, tmp_path: Path) -> None:
        store.put("empty", b"")
        store.get_file("empty", tmp_path / "out")
        assert (store.get("empty"), store.size("empty")) == (b"", 0)
        assert (tmp_path / "out").read_bytes() == b""

    def test_put_replaces(self, store: Store) -> None:
        store.put("a", b"one")
        assert store.put("a", b"two")
        assert store.get("a") == b"two"

    def test_put_if_absent_keeps_the_first(self, store: Store) -> None:
        needs_conditions(store)
        assert store.put("a", b"one", if_absent=True)
        assert not store.put("a", b"two", if_absent=True)
        assert store.get("a") == b"one"

    @pytest.mark.parametrize("size", [0, 5, 8 << 20, (8 << 20) + 1, LARGE])
    def test_files_go_there_and_back_with_progress(
        self, store: Store, tmp_path: Path, size: int
    ) -> None:
        source, back = tmp_path / "source", tmp_path / "back"
        source.write_bytes(os.urandom(size))
        sent: list[int] = []
        received: list[int] = []
        assert store.put_file("f", source, progress=sent.append)
        store.get_file("f", back, progress=received.append)
        assert back.read_bytes() == source.read_bytes()
        assert (sum(sent), sum(received)) == (size, size)

    def test_put_file_if_absent_sends_nothing_when_there(self, store: Store, large: Path) -> None:
        store.put("f", b"first")
        sent: list[int] = []
        assert not store.put_file("f", large, if_absent=True, progress=sent.append)
        assert (store.get("f"), sent) == (b"first", [])

    def test_only_one_of_many_wins_put_if_absent(self, contested: Store) -> None:
        needs_conditions(contested)
        start = threading.Barrier(8)

        def write(number: int) -> bool:
            start.wait()
            return contested.put("contested", str(number).encode(), if_absent=True)

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(write, range(8)))
        assert sum(won) == 1
        assert contested.get("contested") == str(won.index(True)).encode()

    def test_only_one_of_many_wins_put_file_if_absent(
        self, contested: Store, tmp_path: Path
    ) -> None:
        start = threading.Barrier(4)

        def write(number: int) -> bool:
            path = tmp_path / str(number)
            path.write_bytes(bytes([number]) * (9 << 20))
            start.wait()
            return contested.put_file("contested", path, if_absent=True)

        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(write, range(4)))
        assert sum(won) == 1
        assert set(contested.get("contested")) == {won.index(True)}

    def test_a_reader_sees_whole_objects_only(self, store: Store) -> None:
        versions = [bytes([n]) * 200_000 for n in range(6)]
        store.put("k", versions[0])
        done = threading.Event()

        def write() -> None:
            for version in versions:
                store.put("k", version)
            done.set()

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            while not done.is_set() and not writing.done():
                assert store.get("k") in versions
            writing.result()

    def test_absent_objects_are_missing(self, store: Store, tmp_path: Path) -> None:
        with pytest.raises(ObjectMissing, match="nothing/here"):
            store.get("nothing/here")
        with pytest.raises(ObjectMissing):
            store.get_file("nothing/here", tmp_path / "out")
        assert store.size("nothing/here") is None
        assert not list(tmp_path.glob("*out*"))

    def test_delete_is_idempotent(self, store: Store) -> None:
        store.put("a/b", b"x")
        store.delete("a/b")
        store.delete("a/b")
        assert store.size("a/b") is None
        assert list(store.list("")) == []

    def test_list_shows_every_object(self, store: Store) -> None:
        keys = ["a", "a-b", "a.c/d", "a0", "b/c/d", "b/c-d", "b/é", "b/z", "bb/c", "z"]
        for key in reversed(keys):
            store.put(key, key.encode())
        listed = sorted(store.list(""), key=lambda one: one.key)
        assert listed == [StoredObject(k, len(k.encode())) for k in sorted(keys)]

    @pytest.mark.parametrize(
        ("prefix", "expected"),
        [
            ("jobs/1/", ["jobs/1/x", "jobs/1/y/z"]),
            ("jobs/1", ["jobs/1/x", "jobs/1/y/z", "jobs/10/x"]),
            ("jobs/1/y/z", ["jobs/1/y/z"]),
            ("jobs/1/y/z/", []),
            ("job", ["jobs/1/x", "jobs/1/y/z", "jobs/10/x"]),
            ("nothing", []),
        ],
    )
    def test_list_takes_any_beginning(self, store: Store, prefix: str, expected: list[str]) -> None:
        for key in ("jobs/1/x", "jobs/1/y/z", "jobs/10/x", "other"):
            store.put(key, b"")
        assert sorted(found.key for found in store.list(prefix)) == expected

    @pytest.mark.parametrize(
        "key",
        [
            "", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "./a", "a\\b", "a\0b", "a\nb",
            "x" * 256, "a/" * 500 + "a", "\udcff", ".forge-tmp/x",
        ],
    )  # fmt: skip
    def test_keys_that_are_not_names_are_refused(
        self, store: Store, key: str, tmp_path: Path
    ) -> None:
        for use in (
            lambda: store.put(key, b""),
            lambda: store.get(key),
            lambda: store.size(key),
            lambda: store.delete(key),
            lambda: store.get_file(key, tmp_path / "out"),
        ):
            with pytest.raises(KeyInvalid):
                use()

    def test_prefixes_that_climb_are_refused(self, store: Store) -> None:
        with pytest.raises(KeyInvalid):
            list(store.list("a/../"))

    def test_a_failed_upload_leaves_nothing(self, store: Store, large: Path) -> None:
        def interrupt(_sent: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            store.put_file("f", large, progress=interrupt)
        assert store.size("f") is None
        assert list(store.list("")) == []
        assert store.tidy(older_than_s=-1) == 0

    def test_a_failed_download_leaves_nothing(
        self, store: Store, large: Path, tmp_path: Path
    ) -> None:
        store.put_file("f", large)

        def interrupt(_received: int) -> None:
            raise KeyboardInterrupt

        (tmp_path / "into").mkdir()
        with pytest.raises(KeyboardInterrupt):
            store.get_file("f", tmp_path / "into" / "f", progress=interrupt)
        assert not list((tmp_path / "into").iterdir())

    def test_a_missing_source_is_the_callers_error(self, store: Store, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            store.put_file("f", tmp_path / "no such file")

    def test_check_passes_on_a_good_store(self, store: Store) -> None:
        store.check()
        assert list(store.list("")) == []

    def test_it_opens_again_by_its_own_url(self, store: Store) -> None:
        store.put("a", b"kept")
        assert open_store(store.url).get("a") == b"kept"
