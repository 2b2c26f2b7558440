"""What the formats of files say about whether they are whole, after their program was killed."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import struct
import tarfile
import zipfile
import zlib
from typing import TYPE_CHECKING

import pytest
from forge_worker.files.formats.records import masked
from forge_worker.files.kills import Kill, Whole, kill, wholeness

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOISE = bytes(range(1, 251)) * 400
S = 1_000_000_000


def hdf5() -> bytes:
    """Return a superblock of version 0, and the rest of the file that it describes."""
    widths = struct.pack("<BBBBBBBBHHI", 0, 0, 0, 0, 0, 8, 8, 0, 4, 16, 0)
    nowhere = (1 << 64) - 1
    places = struct.pack("<QQQQ", 0, nowhere, 4096, nowhere)
    return (b"\x89HDF\r\n\x1a\n" + widths + places).ljust(4096, b"\1")


def npy() -> bytes:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1000), }\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + bytes(12000)


def ubjson() -> bytes:
    """Return an object as XGBoost writes it: with a typed array."""
    array = b"[$d#L" + struct.pack(">q", 1000) + bytes(4000)
    return b"{L" + struct.pack(">q", 4) + b"base" + array + b"L" + struct.pack(">q", 1) + b"vZ}"


def records() -> bytes:
    head = struct.pack("<Q", 9000)
    return head + struct.pack("<I", masked(head)) + bytes(9004)


def zstd() -> bytes:
    """Return a frame of two blocks as they are."""
    block = b"x" * 3000
    first, last = (3000 << 3).to_bytes(3, "little"), (3000 << 3 | 1).to_bytes(3, "little")
    return b"\x28\xb5\x2f\xfd\x00\x58" + first + block + last + block


def tar() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        info = tarfile.TarInfo("weights")
        info.size = len(NOISE)
        archive.addfile(info, io.BytesIO(NOISE))
    # The end is padded to a whole record.
    return packed.getvalue().rstrip(b"\0").ljust(len(NOISE) // 512 * 512 + 512 * 3, b"\0")


def zipped() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("data.pkl", NOISE)
    return packed.getvalue()


def database(path: Path) -> bytes:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (x)")
        db.executemany("INSERT INTO t VALUES (?)", [("y" * 500,)] * 100)
    db.close()
    return path.read_bytes()


FORMATS: list[tuple[str, Callable[[], bytes]]] = [
    ("w.h5", hdf5),
    ("a.npy", npy),
    ("two.npy", lambda: npy() + npy()),
    ("m.ubj", ubjson),
    ("events.tfevents", records),
    ("m.pkl", lambda: pickle.dumps({"w": NOISE, "n": list(range(1000))}, protocol=2)),
    ("m.pickle", lambda: pickle.dumps({"w": NOISE * 20, "n": list(range(1000))}, protocol=4)),
    ("m.json", lambda: json.dumps({"trees": list(range(5000))}).encode()),
    ("m.txt", lambda: b"tree\nversion=v4\n" + b"x=1\n" * 2000 + b"end of parameters\n"),
    ("m.gz", lambda: gzip.compress(NOISE) * 2),
    ("m.z", lambda: zlib.compress(NOISE * 9, 1)),
    ("m.bz2", lambda: bz2.compress(NOISE)),
    ("m.xz", lambda: lzma.compress(NOISE)),
    ("m.zst", zstd),
    ("m.tar", tar),
    ("m.pt", zipped),
    ("m.parquet", lambda: b"PAR1" + NOISE + b"PAR1"),
    ("m.feather", lambda: b"ARROW1\0\0" + NOISE + b"ARROW1"),
    ("m.onnx", lambda: b"\x08\x07\x3a" + b"\xa0\x8d\x06" + NOISE),
]


def judged(path: Path, data: bytes) -> Whole:
    path.write_bytes(data)
    with path.open("rb") as file:
        return wholeness(file, path.name, len(data))


@pytest.mark.parametrize(("name", "make"), FORMATS)
def test_a_whole_file_shows_it_and_a_part_of_it_does_not(
    name: str, make: Callable[[], bytes], tmp_path: Path
) -> None:
    data = make()
    assert judged(tmp_path / name, data) is Whole.YES
    for tenths in (3, 6, 9):
        assert judged(tmp_path / name, data[: len(data) * tenths // 10]) is not Whole.YES


def test_a_database_has_all_its_pages(tmp_path: Path) -> None:
    data = database(tmp_path / "a.db")
    assert judged(tmp_path / "b.db", data) is Whole.YES
    assert judged(tmp_path / "b.db", data[: len(data) // 2]) is Whole.NO


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"step 5", Whole.YES),
        (b"one\n" * 3000, Whole.YES),
        (b"one\n" * 3000 + b"tw", Whole.UNKNOWN),
        (b'{"a": 1}\n{"a": 2}\n', Whole.YES),
        (b'{"a": 1}\n{"a"', Whole.UNKNOWN),
        (b"", Whole.UNKNOWN),
        (NOISE, Whole.UNKNOWN),
        # Hostile: lengths that lead nowhere, and nesting without end.
        (b"\x93NUMPY\1\0\xff\xff", Whole.UNKNOWN),
        (b"\x80\x04\x95" + b"\xff" * 8 + bytes(2 << 20), Whole.UNKNOWN),
        (b"{" + b"i\1a{" * 100_000, Whole.UNKNOWN),
        (b"[" * 100_000, Whole.UNKNOWN),
        (b"\x28\xb5\x2f\xfd\x00\x58" + bytes(10), Whole.NO),
    ],
)
def test_texts_are_judged_by_their_lines_and_nothing_is_trusted(
    data: bytes, whole: Whole, tmp_path: Path
) -> None:
    assert judged(tmp_path / "file", data) is whole


@pytest.mark.parametrize(
    ("code", "asked_s", "ended_s", "caught", "expected"),
    [
        (0, 0, 9, None, None),
        (1, 0, 9, None, None),
        (255, 0, 9, None, None),
        (137, 0, 9, None, Kill(9 * S)),
        (139, 0, 9, None, Kill(9 * S)),
        (None, 0, 9, None, Kill(9 * S)),
        # Told to stop: it died at once, or lived on and then ended by itself.
        (143, 8, 9, None, Kill(8 * S, asked=True)),
        (143, 2, 9, None, None),
        (137, 2, 9, None, Kill(9 * S)),
        (143, 0, 9, None, Kill(9 * S)),
        # Without a handler it died of the signal, however late a busy machine delivered that.
        (143, 2, 9, False, Kill(9 * S)),
        (143, 8, 9, True, None),
        (0, 8, 9, False, None),
    ],
)
def test_what_counts_as_a_kill(
    code: int | None, asked_s: int, ended_s: int, *, caught: bool | None, expected: Kill | None
) -> None:
    times = {"asked_ns": asked_s * S, "ended_ns": ended_s * S}
    assert kill(code, out_of_memory=False, caught=caught, **times) == expected
