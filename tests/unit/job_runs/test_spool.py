"""Ends on the disk: whole or not at all, also when it is full, until somebody has taken them."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from forge_schema.model.lease import End, Fence, Usage
from forge_schema.model.states import Reason
from forge_worker.agent.outbox import HEAD, SLOT_BYTES, Spool, left_in
from support.services import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def end(job_id: int = 1, detail: str | None = None) -> End:
    usage = Usage(3.5, cpu_seconds=1.25, peak_memory_mb=7)
    return End(Fence(job_id, 9, uuid4()), Reason.EXIT_CODE, 3, detail, usage)


def test_what_is_put_is_there_for_the_next_process_until_it_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = Spool(path, 2)
    first, second = end(1, "why: \x1b ü"), end(2)
    assert spool.put(first)
    assert spool.put(second)
    assert not spool.put(end(3))
    again = Spool(path, 1)
    assert again.ends() == [first, second]
    assert again.fences() == [first.fence, second.fence]
    again.drop(first)
    third = end(3)
    assert again.put(third)
    assert set(Spool(path, 2).fences()) == {second.fence, third.fence}
    for one in (second, third):
        again.drop(one)
    assert Spool(path, 2).ends() == []
    assert left_in(tmp_path) is None


def test_a_slot_that_cannot_be_wiped_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "spool"
    spool, first, second = Spool(path, 2), end(1), end(2)
    assert spool.put(first)
    assert spool.put(second)

    def faulty(*_: object) -> None:
        raise OSError(5, "faulty")

    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", faulty)
        spool.drop(first)
    assert spool.ends() == [second]
    # It comes back with the next start, and its place is free until then.
    assert Spool(path, 2).ends() == [first, second]
    third = end(3)
    assert spool.put(third)
    assert set(Spool(path, 2).fences()) == {second.fence, third.fence}


def test_a_long_detail_is_cut_to_its_slot(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", 1)
    assert spool.put(end(detail="\x01" * 10_000))
    (kept,) = Spool(tmp_path / "spool", 1).ends()
    assert kept.detail
    assert set(kept.detail) == {"\x01"}


@pytest.mark.parametrize("cut", [4, HEAD.size, HEAD.size + 10])
def test_a_write_that_was_cut_off_is_no_end(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "spool"
    whole, torn = end(1), end(2)
    spool = Spool(path, 2)
    spool.put(whole)
    spool.put(torn)
    with path.open("r+b") as file:
        file.seek(SLOT_BYTES + cut)
        file.write(bytes(SLOT_BYTES - cut))
    again = Spool(path, 2)
    assert again.ends() == [whole]
    assert again.put(torn)


def test_an_end_of_another_version_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    Spool(path, 1).put(end())
    data = path.read_bytes().replace(b'"exit_code"', b'"exit_kind"')
    path.write_bytes(data)
    assert Spool(path, 1).ends() == []


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    require(os.geteuid() == 0, "root, to mount a file system")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_has_room_for_what_was_promised(tiny_disk: Path) -> None:
    path = tiny_disk / "spool"
    spool = Spool(path, 4)
    with pytest.raises(OSError, match="No space"):
        (tiny_disk / "fill").write_bytes(bytes(1 << 20))
    for job_id in range(4):
        assert spool.put(end(job_id, "x" * 4000))
    assert len(Spool(path, 4).ends()) == 4
    # One that cannot grow has what it has.
    assert len(Spool(path, 100).ends()) == 4
