"""The size that a log chunk claims for itself is not trusted."""

from __future__ import annotations

import hashlib
import tracemalloc
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import pytest
import zstandard
from forge_client.downloads import unpacked, whole_folder
from forge_client.errors import ClientError
from forge_functions.dashboard.log_pieces import LogPieces
from forge_schema.model.stored import LogChunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from forge_schema.read.jobs import Jobs
    from forge_schema.storage import Store

LARGE = 64 << 20
# A few kB that truthfully state their large unpacked size.
PACKED = zstandard.compress(bytes(LARGE))
SAID = {"token": 1, "number": 0, "key": "k", "start": 0, "bytes": 10, "sha256": "0" * 64}


class Shelf:
    """A store of one object."""

    def __init__(self, packed: bytes) -> None:
        self.packed = packed

    def get(self, _key: str) -> bytes:
        return self.packed


@pytest.fixture
def peak() -> Iterator[Callable[[], int]]:
    """Yield a callable that returns the peak memory of a test so far."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def by_page(packed: bytes, row: dict[str, object]) -> bytes | None:
    pieces = LogPieces(cast("Jobs", None), cast("Store", Shelf(packed)), 1)
    return pieces._data(row)


def test_a_page_unpacks_no_more_than_a_chunk_is_said_to_have(peak: Callable[[], int]) -> None:
    assert by_page(PACKED, SAID) is None
    assert peak() < LARGE / 4
    data = b"line\n" * 1000
    good = {**SAID, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert by_page(zstandard.compress(data), good) == data
    assert by_page(zstandard.compress(data)[:-3], good) is None


def test_a_command_unpacks_no_more_than_a_chunk_is_said_to_have(peak: Callable[[], int]) -> None:
    chunk = LogChunk.model_validate({"attempt": 1, "rank": 0, "created_at": 0, **SAID})
    with pytest.raises(ClientError, match="not what was stored"):
        unpacked(chunk, PACKED)
    assert peak() < LARGE / 4


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path, there: bool) -> None:  # noqa: FBT001
    folder = tmp_path / "code"
    if there:
        folder.mkdir()
    with suppress(KeyboardInterrupt), whole_folder(folder) as partial:
        (partial / "train.py").touch()
        raise KeyboardInterrupt
    assert list(tmp_path.rglob("*")) == [folder] * there
    with whole_folder(folder) as partial:
        (partial / "train.py").touch()
    assert list(tmp_path.rglob("*")) == [folder, folder / "train.py"]
