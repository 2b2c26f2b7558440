"""Copies of a job's files: the same bytes, holes kept, and no more than requested."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_worker.attempt import Stopped
from forge_worker.files.safe_files import PIECE, copy, weight

if TYPE_CHECKING:
    from pathlib import Path


def test_copy_is_the_same_but_fills_no_hole(tmp_path: Path) -> None:
    content = b"\0" * 3 + b"x" + b"\0" * (64 * PIECE) + b"y" + b"\0" * (64 * PIECE + 5)
    (tmp_path / "source").write_bytes(content)
    (tmp_path / "copies").mkdir()
    pieces: list[None] = []
    with (tmp_path / "source").open("rb") as source:
        copy(source, tmp_path / "copies" / "all", 1 << 30, lambda: pieces.append(None))
    assert (tmp_path / "copies" / "all").read_bytes() == content
    assert weight(tmp_path / "copies") < 8 * PIECE
    assert len(pieces) == 129


def test_copy_ends_at_its_size_and_when_it_is_told_to(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"x" * (3 * PIECE))

    def stop() -> None:
        raise Stopped

    with (tmp_path / "source").open("rb") as source:
        copy(source, tmp_path / "part", PIECE + 1, lambda: None)
        with pytest.raises(Stopped):
            copy(source, tmp_path / "none", PIECE, stop)
    assert (tmp_path / "part").read_bytes() == b"x" * (PIECE + 1)
