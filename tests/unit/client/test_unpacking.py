"""The sizes that a worker claims are not trusted: of log chunks, files and their chunks."""

from __future__ import annotations

import hashlib
import tracemalloc
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, cast

import pytest
from forge_client import downloads
from forge_client.downloads import put_together, whole_folder, write_whole
from forge_client.errors import ClientError
from forge_client.plain.unpacking import unpacked
from forge_functions.dashboard.log_pieces import LogPieces
from forge_schema import zstd
from forge_schema.model.bundles import folded_name
from forge_schema.model.stored import Artifact, ArtifactChunk, LogChunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from forge_client.backend import Backend
    from forge_schema.read.jobs import Jobs
    from forge_schema.storage import Store

LARGE = 64 << 20
# A few kB that truthfully state their large unpacked size.
PACKED = zstd.compress(bytes(LARGE))
SAID = {"token": 1, "number": 0, "key": "k", "start": 0, "bytes": 10, "sha256": "0" * 64}


class Shelf:
    """A store of one object."""

    def __init__(self, packed: bytes) -> None:
        self.packed = packed

    def get(self, _key: str) -> bytes:
        return self.packed

    def size(self, _key: str) -> int:
        return len(self.packed)


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
    assert by_page(zstd.compress(data), good) == data
    assert by_page(zstd.compress(data)[:-3], good) is None


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


def file_of(nbytes: int) -> Artifact:
    key = "jobs/1/1-1/chunked/model"
    return Artifact(path="model", key=key, bytes=nbytes, sha256="ab" * 32, attempt=1)


def chunk_at(offset: int, nbytes: int) -> ArtifactChunk:
    return ArtifactChunk(
        key="k", offset=offset, bytes=nbytes, sha256=hashlib.sha256(b"x").hexdigest()
    )


@pytest.mark.parametrize(
    "lists",
    [
        pytest.param([[(0, 1)] * 40], id="one chunk again and again"),
        pytest.param([[(0, 1), (2, 1)]], id="gap"),
        pytest.param([[(0, 4)]], id="larger"),
        pytest.param([[(0, 33 << 20)]], id="huge"),
        pytest.param([[(0, 0)]], id="empty"),
        pytest.param([[(-1, 1)]], id="before the file"),
        pytest.param([[(0, 1)], []], id="ends early"),
    ],
)
def test_chunks_that_do_not_make_the_file_leave_nothing_beyond_it(
    tmp_path: Path, lists: list[list[tuple[int, int]]]
) -> None:
    path, pages = tmp_path / "model", iter([[chunk_at(*one) for one in page] for page in lists])

    def fetch(chunk: ArtifactChunk, write: Callable[[bytes], object]) -> None:
        write(b"x" * chunk.bytes)

    with pytest.raises(ClientError, match="is not what was stored"):
        put_together(path, file_of(3), lambda _: next(pages), fetch)
    assert path.stat().st_size == 3


def test_a_chunk_with_more_than_it_says_is_broken_off(tmp_path: Path) -> None:
    read = []

    def fetch(_: ArtifactChunk, write: Callable[[bytes], object]) -> None:
        for number in range(1000):
            read.append(number)
            write(b"x")

    with pytest.raises(ClientError, match="is not what was stored"):
        put_together(tmp_path / "model", file_of(1), lambda _: [chunk_at(0, 1)], fetch)
    assert read == [0, 1]


def test_a_file_with_more_than_it_says_is_broken_off(tmp_path: Path) -> None:
    endless = iter(lambda: b"xx", b"")
    with pytest.raises(ClientError, match="is not what was stored"):
        write_whole(tmp_path / "model", file_of(3), endless, None)
    assert (tmp_path / "model").stat().st_size <= 3


class Files:
    """A backend whose artifacts contain their own names."""

    def download(self, artifact: Artifact, path: Path, _progress: object = None) -> None:
        path.write_bytes(artifact.path.encode())


def files(*names: str) -> list[Artifact]:
    return [file_of(5).model_copy(update={"path": name, "key": name}) for name in names]


@pytest.mark.parametrize(("names", "ignores_case", "kept"), [
    (["a", "A", "b"], True, ["a", "b"]),
    (["a", "A", "b"], False, ["A", "a", "b"]),
    (["\u00e9", "e\u0301"], True, ["\u00e9"]),
    (["a", "a/b"], False, ["a/b"]),
    (["A", "a/b", "c"], True, ["a/b", "c"]),
    (["a", "b", "a"], False, ["a", "b"]),
])  # fmt: skip
def test_of_names_that_are_one_on_this_disk_the_first_is_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
    ignores_case: bool,  # noqa: FBT001  a parameter of the test
    kept: list[str],
) -> None:
    same = folded_name if ignores_case else str
    monkeypatch.setattr(downloads, "same_name", lambda _: same)
    folder = tmp_path / "to"
    with ExitStack() as refused:
        if sorted(names) != sorted(kept):
            expected = pytest.raises(ClientError, match="into another file")
            refused.enter_context(expected)
        downloads.download_all(cast("Backend", Files()), files(*names), folder)
    there = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    assert sorted(there) == sorted(kept)
    assert all(path.read_bytes() == name.encode() for name, path in there.items())
