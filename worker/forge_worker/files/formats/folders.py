"""Recognise what a training framework has only half written, by the formats of its files.

A program that is killed leaves a file or a folder as it was at that moment. The next attempt would
fail to load it, although an older one beside it is whole.
"""

import json
import os
import re
from pathlib import PurePosixPath
from typing import BinaryIO

from forge_worker.files.safe_files import Listing

# `torch.save` writes a zip archive, whose directory comes last; a comment may follow it.
ZIP, ZIP_END, ZIP_END_BYTES = b"PK\x03\x04", b"PK\x05\x06", 22
ZIP_TAIL = ZIP_END_BYTES + 0xFFFF
SAFETENSORS, LENGTH_BYTES, LONGEST_HEADER = ".safetensors", 8, 100 << 20
# A folder of a step that looks like a Trainer's counts as half for so long after a write to it.
YOUNG_NS = 10_000_000_000
# Hugging Face's Trainer writes its state last, in a folder for each saved step …
STEP_FOLDER, STEP_STATE, STEP_SIGN = (
    re.compile(r"checkpoint-\d+"),
    "trainer_state.json",
    "training_args.bin",
)
# … and PyTorch's distributed checkpoints their metadata, once all ranks have written their parts.
PART, METADATA = ".distcp", ".metadata"


def is_half(file: BinaryIO, name: str, size: int) -> bool:
    """Tell whether a file of `size` bytes is surely only the beginning of one.

    It is, if it begins as a zip archive and has no end, or if it is smaller than its safetensors
    header says.
    """
    head = os.pread(file.fileno(), LENGTH_BYTES, 0)
    if head.startswith(ZIP):
        return _lacks_end(os.pread(file.fileno(), ZIP_TAIL, max(0, size - ZIP_TAIL)))
    return name.endswith(SAFETENSORS) and size < _declared(file, head)


def _lacks_end(tail: bytes) -> bool:
    place = tail.rfind(ZIP_END)
    comment = int.from_bytes(tail[place + ZIP_END_BYTES - 2 : place + ZIP_END_BYTES], "little")
    return place < 0 or place + ZIP_END_BYTES + comment > len(tail)


def _declared(file: BinaryIO, head: bytes) -> int:
    length = int.from_bytes(head, "little")
    if len(head) < LENGTH_BYTES or length > LONGEST_HEADER:
        return 0
    try:
        tensors = json.loads(os.pread(file.fileno(), length, LENGTH_BYTES)).items()
        ends = [tensor["data_offsets"][1] for name, tensor in tensors if name != "__metadata__"]
        return LENGTH_BYTES + length + max(ends, default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        # Its header is cut off.
        return LENGTH_BYTES + length


def whole(found: Listing, now_ns: int) -> Listing:
    """Return a folder's files without those in folders that were only half written.

    Args:
        found: the files.
        now_ns: the time, or that of a kill, before which a folder is young for a while; a program
            that ended by itself leaves none.
    """
    folders: dict[str, set[str]] = {}
    for path in found:
        place = PurePosixPath(path)
        folders.setdefault(str(place.parent), set()).add(place.name)
    trained = {
        str(PurePosixPath(f).parent)
        for f, names in folders.items()
        if names & {STEP_STATE, STEP_SIGN}
    }
    times = {path: now_ns - status[1] for path, status in found.items()}
    young = {str(PurePosixPath(p).parent) for p, age in times.items() if 0 <= age < YOUNG_NS}
    half = [f"{f}/" for f, names in folders.items() if _is_half_folder(f, names, trained, young)]
    return {path: status for path, status in found.items() if not path.startswith(tuple(half))}


def _is_half_folder(folder: str, names: set[str], trained: set[str], young: set[str]) -> bool:
    if METADATA not in names and any(name.endswith(PART) for name in names):
        return True
    place = PurePosixPath(folder)
    if STEP_STATE in names or not STEP_FOLDER.fullmatch(place.name):
        return False
    # Another program may have such folders as well.
    return folder in young or str(place.parent) in trained
