"""What killed saves leave in a checkpoint: when it is left out of a restore."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.storage.manifest import Entry
from forge_worker.files.copies import Copies, Copy, FileShape
from forge_worker.files.formats.folders import unfinished
from forge_worker.files.groups import Together
from forge_worker.files.save_order import Writes, halfway

if TYPE_CHECKING:
    from collections.abc import Mapping

DIGEST = "a" * 64
HEX = "0123456789abcdef" * 2
LEFT = [
    "model/.tmpAbC123",
    f"array.zarr/c/0.{HEX}.partial",
    "tmp/cat_feature_index.c1a2b3d4-5e6f7081-9aabbccd-deeff001.tmp",
    "8.orbax-checkpoint-tmp/default.orbax-checkpoint-tmp/data",
    "8.orbax-checkpoint-tmp-1700000000/data",
    "model.tmp",
    "model.partial",
]
REAL = [
    "tmp",
    ".tmp",
    "vocab.tmp",
    "data.partial",
    "x.tmpAbC123",
    ".tmpAbC12",
    "orbax.json",
    "a.pt",
]


def entry(path: str, attempt: int, mtime_ns: int | None) -> Entry:
    key = f"jobs/7/{attempt}-9-x/checkpoints/files/000000-{DIGEST}"
    return Entry(path, 1, DIGEST, key, mtime_ns=mtime_ns)


@pytest.mark.parametrize("path", LEFT)
def test_it_is_restored_once_and_then_left_out(path: str) -> None:
    first = unfinished([entry(path, 1, 5), entry("model", 1, 9)], 1)
    assert (set(first.old), set(first.new)) == (set(), {path})
    second = unfinished([entry(path, 1, 5), entry("model", 2, 9)], 2)
    assert (set(second.old), set(second.new)) == ({path}, set())


@pytest.mark.parametrize("path", REAL)
def test_other_files_are_always_restored(path: str) -> None:
    found = unfinished([entry(path, 1, 5), entry("model", 2, 9)], 2)
    assert not found.old
    assert not found.new


@pytest.mark.parametrize(
    ("model", "left"),
    [
        (entry("model", 1, 3), entry(".tmpAbC123", 1, 5)),
        (entry("model", 2, 9), entry(".tmpAbC123", 2, 5)),
        (entry("model", 2, 4), entry(".tmpAbC123", 1, 5)),
        (entry("model", 2, None), entry(".tmpAbC123", 1, 5)),
        (entry("model", 2, 9), entry(".tmpAbC123", 1, None)),
    ],
    ids=["nothing was stored", "touched", "older than it", "time unknown", "its time unknown"],
)
def test_it_stays_as_long_as_something_may_use_it(model: Entry, left: Entry) -> None:
    assert not unfinished([model, left], 2).old


@pytest.mark.parametrize(
    ("path", "size", "cut"),
    [("train.log", 9, False), ("tb/events.out.tfevents.1", 9, False), ("x.log", 1, True),
     ("optimizer", 9, True)],
)  # fmt: skip
def test_a_log_that_goes_on_after_a_save_does_not_make_it_half(
    path: str, size: int, *, cut: bool
) -> None:
    second = 1_000_000_000
    stored = {path: entry(path, 1, 10 * second), "model": entry("model", 1, 10 * second + 1)}
    # The model is new and whole; the other file was written six seconds later, before the kill.
    listing = {"model": (1, 94 * second, 1), path: (size, 100 * second, 2)}
    found = halfway(listing, {}, stored, (), 100 * second, writes=Writes(), together=Together())
    assert found == ((path, "model") if cut else None)


SECOND = 1_000_000_000


def seen(*written: tuple[str, int]) -> Copies:
    """Return whole copies of files by when they were written, in seconds."""
    return {p: Copy((1, at * SECOND, 1), 1, FileShape.WHOLE) for p, at in written}


def halfway_after(
    stored: Mapping[str, float], now: Mapping[str, float], writes: Writes
) -> tuple[str, str] | None:
    """Judge a kill 0.2 s after the last write; times are in tenths of a second."""
    old = {path: entry(path, 1, int(at * SECOND) // 10) for path, at in stored.items()}
    listing = {path: (1, int(at * SECOND) // 10, 1) for path, at in now.items()}
    copies: Copies = {p: Copy(s, 1, FileShape.WHOLE) for p, s in listing.items()}
    new = {p: c for p, c in copies.items() if p not in old or old[p].mtime_ns != c.status[1]}
    (together := Together()).look(now)
    killed_ns = int(max(now.values()) * SECOND) // 10 + 2 * SECOND // 10
    return halfway(listing, new, old, (), killed_ns, writes=writes, together=together)


@pytest.mark.parametrize(
    ("looks", "alone"),
    [
        ([], False),
        ([("history", 2, True)], False),
        ([("history", 2, True), ("history", 3, False)], True),
        ([("history", 2, False), ("history", 3, False)], False),
        ([("history", 2, False), ("history", 3, False), ("history", 4, False)], True),
        # The model was written too, although later: its save was slow.
        ([("history", 2, False), ("model", 3, False), ("history", 4, False)], False),
    ],
)
def test_what_was_seen_to_be_written_without_a_save_does_not_begin_one(
    looks: list[tuple[str, int, bool]], *, alone: bool
) -> None:
    writes = Writes()
    stored = {"history": entry("history", 1, SECOND), "model": entry("model", 1, SECOND + 1)}
    for path, at, quiet in looks:
        writes.note(seen((path, at)), stored, quiet=quiet)
    writes.note(seen(("history", 89), ("model", 90)), stored)
    found = halfway_after({"history": 899, "model": 900}, {"history": 1052, "model": 1000}, writes)
    assert found == (None if alone else ("history", "model"))


@pytest.mark.parametrize(
    ("sample", "half"),
    [({}, True), ({"sample-8": 1001}, False), ({"sample-8": 940}, True), ({"image-8": 1001}, True)],
)
def test_a_save_whose_last_file_has_a_new_name_each_time_is_whole_with_it(
    sample: dict[str, int], *, half: bool
) -> None:
    stored = {"model": 899, "sample-7": 900, "sample-6": 800}
    found = halfway_after(stored, {**stored, "model": 1000, **sample}, Writes())
    assert found == (("model", "sample-7") if half else None)


@pytest.mark.parametrize(("folder", "half"), [("group/", True), ("", False)])
def test_of_files_that_are_one_whole_even_quick_saves_are_told_apart(
    folder: str, *, half: bool
) -> None:
    first, last = f"{folder}chunk", f"{folder}zarr.json" if folder else "attributes"
    # The save before ended 0.3 s ago.
    found = halfway_after({first: 900, last: 900.5}, {first: 1003, last: 1000.5}, Writes())
    assert found == ((first, last) if half else None)
