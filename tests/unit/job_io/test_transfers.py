"""The threads in which objects travel, and the batches that they take."""

from __future__ import annotations

from functools import partial
from threading import Barrier, Event
from typing import TYPE_CHECKING, BinaryIO, cast

import pytest
from forge_schema.protocol import OBJECTS
from forge_schema.storage.manifest import CHUNK_BYTES
from forge_worker.transfers import REQUESTS, TRANSFERS, Transfers, batches
from forge_worker.transfers.sending import HASHED_BYTES, FileSender, FileSource, StoredChunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from forge_schema.storage import Objects

TIMEOUT_S = 30


def test_calls_run_at_once_and_each_result_is_given() -> None:
    together = Barrier(4)

    def call(number: int) -> int:
        together.wait(TIMEOUT_S)
        return number

    transfers = Transfers(4)
    assert sorted(transfers.each(partial(call, number) for number in range(8))) == list(range(8))


def test_calls_are_made_only_as_fast_as_they_end() -> None:
    made: list[int] = []
    goes_on = Event()

    def calls() -> Iterator[Callable[[], object]]:
        for number in range(100):
            made.append(number)
            yield (lambda: None) if number else partial(goes_on.wait, TIMEOUT_S)

    results = Transfers(3).each(calls())
    next(results)
    assert len(made) <= 6
    goes_on.set()
    assert len(list(results)) == 99


def test_error_is_raised_once_all_that_began_are_over() -> None:
    transfers, ends, over = Transfers(2), Event(), list[str]()

    def slow() -> None:
        ends.wait(TIMEOUT_S)
        over.append("slow")

    def fails() -> None:
        ends.set()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        list(transfers.each([slow, fails]))
    assert over == ["slow"]
    # Its threads go on.
    assert list(transfers.each([lambda: 1])) == [1]


def test_two_callers_share_the_threads() -> None:
    transfers, goes_on = Transfers(2), Event()
    first = transfers.each(partial(goes_on.wait, TIMEOUT_S) for _ in range(50))
    second = transfers.each([goes_on.set])
    # The second caller waits for two calls of the first one at most.
    goes_on.set()
    assert next(first)
    assert list(second) == [None]
    assert len(list(first)) == 49


class Meeting:
    """A store whose small objects all have to be on their way before the first is stored."""

    def __init__(self, objects: int) -> None:
        self._all_here = Barrier(objects)

    def expect(self, **_: object) -> None: ...

    def put_together(self, objects: object) -> bool:  # noqa: ARG002  none takes several
        return False

    def put(self, key: str, data: bytes) -> bool:  # noqa: ARG002  nothing is kept
        self._all_here.wait(TIMEOUT_S)
        return True


def test_small_files_of_one_batch_travel_at_once(tmp_path: Path) -> None:
    count = REQUESTS.threads
    assert count > TRANSFERS.threads
    sources = [
        FileSource(f"{n}", 1, lambda *_: b"x", CHUNK_BYTES, key=f"{n}") for n in range(count)
    ]
    store, stored = cast("Objects", Meeting(count)), StoredChunks(tmp_path / "stored")
    FileSender(store, stored, str, lambda: None).send(sources)
    assert [source.left for source in sources] == [0] * count


class Copying:
    """A store that copies parts of files by itself."""

    def __init__(self) -> None:
        self.copied: list[int] = []

    def expect(self, **_: object) -> None: ...

    def put_part(self, key: str, file: object, offset: int, size: int) -> bool:  # noqa: ARG002
        self.copied.append(size)
        return True


def test_a_file_is_not_held_in_memory_unless_it_is_small(tmp_path: Path) -> None:
    size, largest = 1 << 20, 0
    (tmp_path / "file").write_bytes(bytes(size))

    def read(_offset: int, count: int) -> bytes:
        nonlocal largest
        largest = max(largest, count)
        return bytes(count)

    def opened() -> BinaryIO:
        return (tmp_path / "file").open("rb")

    sources = [FileSource("file", size + n, read, CHUNK_BYTES, open=opened) for n in range(3)]
    store = Copying()
    stored = StoredChunks(tmp_path / "stored")
    FileSender(cast("Objects", store), stored, str, lambda: None).send(sources)
    assert sorted(store.copied) == [size, size + 1, size + 2]
    assert largest == HASHED_BYTES


def test_batches_fit_in_memory_and_in_a_request() -> None:
    half = CHUNK_BYTES // 2
    assert list(batches([("a", half), ("b", half), ("c", 1)])) == [["a", "b"], ["c"]]
    assert list(batches([("a", 1), ("b", CHUNK_BYTES * 3), ("c", 1)])) == [["a"], ["b"], ["c"]]
    assert [len(few) for few in batches((n, 0) for n in range(OBJECTS + 1))] == [OBJECTS, 1]
    assert list(batches([])) == []
