"""What killed saves leave in a checkpoint: when it is left out of a restore."""

from __future__ import annotations

import pytest
from forge_schema.storage.manifest import Entry
from forge_worker.files.formats.folders import unfinished
from forge_worker.files.groups import halfway

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
    found = halfway(listing, {}, stored, (), 100 * second)
    assert found == ((path, "model") if cut else None)
