"""Failures that only the store in a folder must survive."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from forge_schema.storage import KeyInvalid, StoreError, StoreUnreachable, open_store
from support.store.storage import kill_in_mid_upload

if TYPE_CHECKING:
    from pathlib import Path

LARGE = 3 << 20


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(LARGE))
    return path


class TestFileStore:
    def test_check_says_when_the_folder_cannot_be_made(self, tmp_path: Path) -> None:
        store = open_store((tmp_path / "no" / "such" / "mount").as_uri())
        with pytest.raises(StoreUnreachable) as caught:
            store.check()
        assert caught.value.hint
        with pytest.raises(StoreUnreachable):
            store.put("a", b"")
        assert not (tmp_path / "no").exists()

    def test_check_says_when_the_folder_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "store").write_bytes(b"")
        with pytest.raises(StoreUnreachable):
            open_store((tmp_path / "store").as_uri()).check()

    def test_a_link_out_of_the_store_is_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "secret").write_bytes(b"secret")
        store = open_store((tmp_path / "store").as_uri())
        store.put("a", b"x")
        (tmp_path / "store" / "out").symlink_to(tmp_path / "outside")
        (tmp_path / "store" / "secret").symlink_to(tmp_path / "outside" / "secret")
        for use in (
            lambda: store.put("out/f", b""),
            lambda: store.get("out/secret"),
            lambda: store.get("secret"),
            lambda: store.delete("out/secret"),
            lambda: list(store.list("out/")),
        ):
            with pytest.raises(KeyInvalid):
                use()
        assert [found.key for found in store.list("")] == ["a"]

    def test_a_key_below_an_object_is_refused(self, tmp_path: Path) -> None:
        store = open_store((tmp_path / "store").as_uri())
        store.put("a", b"x")
        with pytest.raises(StoreError):
            store.put("a/b", b"y")
        assert store.get("a") == b"x"

    def test_puts_and_deletes_in_one_folder_do_not_disturb_each_other(self, tmp_path: Path) -> None:
        store = open_store((tmp_path / "store").as_uri())

        def churn(number: int) -> None:
            for _ in range(40):
                store.put(f"a/b/c/{number}", b"x")
                assert store.get(f"a/b/c/{number}") == b"x"
                store.delete(f"a/b/c/{number}")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(churn, range(4)))
        assert list(store.list("")) == []

    def test_what_a_killed_writer_left_is_tidied_once_it_is_old(
        self, tmp_path: Path, large: Path
    ) -> None:
        url = (tmp_path / "store").as_uri()
        kill_in_mid_upload(url, large, {})
        store = open_store(url)
        assert list(store.list("")) == []
        assert store.tidy(older_than_s=3600) == 0
        assert store.tidy(older_than_s=-1) == 1
        assert store.tidy(older_than_s=-1) == 0
