"""What to tell people of a job before it runs: what is left out of its files, and what it lacks."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from forge_schema.model.quantities import counted, names_text, size_text

from forge_client.project.listing import (
    RESULTS,
    Listing,
    is_environment,
    sentence,
    unmatched_sentence,
)

if TYPE_CHECKING:
    from forge_schema.model.explanation import Explanation

CODE = {".py", ".ipynb", ".sh", ".yaml", ".yml", ".toml", ".cu", ".cpp", ".c", ".rs", ".jl", ".r"}
DATA = {
    ".arrow", ".bin", ".bz2", ".ckpt", ".csv", ".db", ".feather", ".flac", ".gguf", ".gz", ".h5",
    ".hdf5", ".jpeg", ".jpg", ".jsonl", ".lmdb", ".mat", ".mdb", ".mp3", ".mp4", ".nc", ".npy",
    ".npz", ".onnx", ".orc", ".parquet", ".pkl", ".png", ".pt", ".pth", ".safetensors", ".sqlite",
    ".tar", ".tfrecord", ".tif", ".tiff", ".tsv", ".txt", ".wav", ".webp", ".xlsx", ".xz", ".zarr",
    ".zip", ".zst",
}  # fmt: skip
# What programs write and can make again.
MADE = RESULTS | {
    "__pycache__", "build", "coverage", "dist", "htmlcov", "logs", "mlartifacts", "mlruns",
    "multirun", "node_modules", "outputs", "runs", "site-packages", "target",
}  # fmt: skip
# So many files are looked at in all folders that are left out.
MOST_LOOKS = 20_000
# What Git LFS writes in the place of a file that it has not fetched, and how long that may be.
POINTER, POINTER_BYTES = b"version https://git-lfs.github.com/", range(100, 300)
MOST_POINTERS = 1000
UPDATE = "git submodule update --init"
SHOWN = 3
# Limits that only an admin ends, at least today.
BY_AN_ADMIN = {"approval", "queue_paused", "budget", "team_budget"}
# Messages for the outlooks in `explain` of a job that no worker takes.
NOBODY = {
    "no_worker": "no online worker can run it",
    "unfit": "no online worker can run it",
    "unavailable": "no worker that can run it is taking jobs now",
}


@dataclass(frozen=True)
class Missed:
    """What ignore files leave out of a bundle: a path with its files and their bytes."""

    name: str
    files: int
    bytes: int


def notices(listing: Listing, words: Iterable[str] = ()) -> list[str]:
    """Return sentences about what a bundle leaves out, though the job may need it."""
    missed = missing(listing)
    sentences = (
        *(f"{why}; without it, what it tracks and ignores is left out" for why in listing.faults),
        sentence(listing.left_out),
        unmatched_sentence(listing.unmatched),
        _not_fetched("submodules that are not checked out", listing.submodules, UPDATE),
        _not_fetched("pointers of Git LFS in place of files", _pointers(listing), "git lfs pull"),
        _named_sentence(listing, words) or _missed_sentence(missed),
    )
    return [notice for notice in sentences if notice]


def _not_fetched(what: str, names: Sequence[str], command: str) -> str:
    if not names:
        return ""
    return f"{what}: {names_text(names, SHOWN)}; if the job needs them: {command}"


def _pointers(listing: Listing) -> list[str]:
    """Return files that are only pointers to their content."""
    suspects = (e for e in listing.files if e.link is None and e.size in POINTER_BYTES)
    data = (e for e in suspects if PurePosixPath(e.name).suffix.lower() in DATA)
    found = []
    for entry in islice(data, MOST_POINTERS):
        with suppress(OSError), entry.path.open("rb") as file:
            if file.read(len(POINTER)) == POINTER:
                found.append(entry.name)
    return found


def missing(listing: Listing) -> list[Missed]:
    """Return what ignore files leave out that looks like data or code, the largest first."""
    left = [MOST_LOOKS]
    missed = [folder for name in listing.ignored if (folder := _measured(listing.root, name, left))]
    return sorted(missed, key=lambda folder: (-folder.bytes, folder.name))


def _missed_sentence(missed: Sequence[Missed]) -> str:
    if not missed:
        return ""
    files, total = sum(folder.files for folder in missed), sum(folder.bytes for folder in missed)
    names = names_text([folder.name for folder in missed], SHOWN)
    above = os.path.commonpath([folder.name for folder in missed])
    wanted = [f"{above}/"] if above and missed[1:] else [each.name for each in missed[:SHOWN]]
    options = " ".join(f"--include {shlex.quote(name)}" for name in wanted)
    return (
        f"ignore files leave out {counted(files, 'file')}, {size_text(total)}: {names};"
        f" if the job needs them: {options}"
    )


def _named_sentence(listing: Listing, words: Iterable[str]) -> str:
    """Return a sentence about a path in a command that is there, and the job will not have."""
    mentioned = (part for word in words for part in (word, word.partition("=")[2]) if part)
    for path in map(os.path.normpath, mentioned):
        if not _exists(listing.root / path):
            continue
        if path.split("/")[0] == "..":
            return f"the command names {path}, outside the folder: submit from one that has both"
        if path.startswith("/"):
            if Path(path).is_relative_to(listing.root) and path != str(listing.root):
                own = os.path.relpath(path, listing.root)
                return f"the command names {path}, which is on this machine: in the job it is {own}"
            continue
        out = next((name for name in listing.ignored if _is_in(path, name.rstrip("/"))), None)
        # Results are written again.
        if out and ((listing.root / path).is_file() or not _is_made(path)):
            what = f"the command names {path}, which ignore files leave out"
            return f"{what}: if the job reads it, --include {shlex.quote(out)}"
    return ""


def _exists(path: Path) -> bool:
    with suppress(OSError, ValueError):
        return path.exists()
    return False


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _is_made(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return any(part in MADE or part.startswith(".") or ".egg-info" in part for part in parts)


def _measured(root: Path, name: str, left: list[int]) -> Missed | None:
    """Return an entry that looks like data or code; `left` is how many files may be looked at."""
    path = root / name
    if _is_made(name) or is_environment(path):
        return None
    wanted = files = size = 0
    for file in _files(path):
        if left[0] <= 0:
            break
        left[0] -= 1
        wanted += file.suffix.lower() in DATA | CODE
        files += 1
        try:
            size += file.lstat().st_size
        except OSError:
            continue
    return Missed(name, files, size) if wanted else None


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for at, folders, names in os.walk(path):
        folders[:] = sorted(folder for folder in folders if not _is_made(folder))
        yield from (Path(at, name) for name in names)


def remarks(explanation: Explanation) -> list[str]:
    """Return why a job would wait for a person: an admin, a queue's right name, or a worker."""
    texts = [limit.text for limit in explanation.limits if limit.code in BY_AN_ADMIN]
    if near := explanation.near_queue:
        texts.append(f"queue {explanation.queue} is new; did you mean {near}?")
    if sentence := NOBODY.get(explanation.outlook):
        if explanation.nodes > 1 or explanation.text.startswith("no online worker"):
            sentence = explanation.text
        advice = f": {explanation.remedies[0].text}" if explanation.remedies else ""
        texts.append(f"{sentence}{advice}")
    return texts
