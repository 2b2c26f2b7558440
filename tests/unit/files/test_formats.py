"""Which files and folders count as half written."""

from __future__ import annotations

import json
import zipfile
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from forge_worker.files.copies import SmallCopies, held_open, steady_copy
from forge_worker.files.formats.folders import YOUNG_NS, is_half, whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def half(path: Path, length: int | None = None) -> bool:
    """Judge a file, or its first bytes."""
    data = path.read_bytes()[:length]
    path.write_bytes(data)
    with path.open("rb") as file:
        return is_half(file, path.name, len(data))


def safetensors(path: Path) -> Path:
    """Write a file of one tensor, as the format describes it."""
    tensor = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "w": tensor}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    return path


def archive(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data.pkl", b"x" * 1000)
    return path


@pytest.mark.parametrize("make", [safetensors, archive])
def test_a_file_that_is_cut_off_is_half(make: Callable[[Path], Path], tmp_path: Path) -> None:
    place = tmp_path / "model.safetensors"
    size = make(place).stat().st_size
    assert not half(make(place))
    for length in (9, size // 2, size - 1):
        assert half(make(place), length)


@pytest.mark.parametrize("data", [b"", b"PK", b"a log\n", b"\xff" * 100])
def test_what_is_of_no_known_format_is_never_half(data: bytes, tmp_path: Path) -> None:
    place = tmp_path / "model.pt"
    place.write_bytes(data)
    assert not half(place)


@pytest.mark.parametrize(
    ("found", "out"),
    [
        (["checkpoint-5/model.safetensors", "checkpoint-5/training_args.bin"], "checkpoint-5"),
        (
            ["o/checkpoint-5/trainer_state.json", "o/checkpoint-9/model.safetensors"],
            "o/checkpoint-9",
        ),
        (["step-7/__0_0.distcp", "step-6/.metadata", "step-6/__0_0.distcp"], "step-7"),
        # Another program's folder of that name, and a folder in one that is whole.
        (["checkpoint-5/weights.bin"], None),
        (["checkpoint-5/trainer_state.json", "checkpoint-5/global_step5/shard.pt"], None),
    ],
)
def test_folders_of_steps_that_are_half_saved_are_left_out(
    found: list[str], out: str | None
) -> None:
    listing = dict.fromkeys(found, (1, 1, 1))
    kept = [path for path in found if out is None or not path.startswith(f"{out}/")]
    assert list(whole(listing, YOUNG_NS + 1)) == kept


def test_a_folder_that_may_be_a_trainers_is_left_out_while_it_is_young() -> None:
    listing = {"checkpoint-5/model.safetensors": (1, 1, 1), "model": (1, 1, 1)}
    assert list(whole(listing, YOUNG_NS)) == ["model"]
    assert whole(listing, YOUNG_NS + 1) == listing


def test_a_half_file_is_not_stored_though_its_job_has_ended(tmp_path: Path) -> None:
    place = archive(tmp_path / "model.pt")
    for data, sound in ((place.read_bytes(), True), (place.read_bytes()[:-1], False)):
        place.write_bytes(data)
        with ExitStack() as files:
            copied = steady_copy(
                tmp_path,
                place.name,
                lambda: tmp_path / "copy",
                None,
                lambda: None,
                small=SmallCopies(tmp_path / "small", 1 << 20, (), files),
                ended=True,
            )
            held = held_open(tmp_path, place.name, files, ended=True)
        assert (copied.sound, held is not None) == (sound, sound)
