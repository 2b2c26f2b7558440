"""Inputs of jobs on real workers: another job's files and offered folders, fetched once, whole."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from forge_functions.objects import may_get
from forge_schema.explain import explain
from forge_schema.model.job import JobUnknown
from forge_schema.model.lease import Fence
from forge_schema.queue.attempt_records import OwnLease
from forge_schema.queue.inputs import InputUnknown
from forge_schema.storage.file_store import FileStore
from forge_schema.storage.manifest import CHUNK_BYTES, Extent
from forge_worker.attempt import LiveAttempt, Stopped
from forge_worker.prepare.cache import LruFolders
from forge_worker.prepare.inputs.cache import InputCache
from forge_worker.prepare.inputs.source import InputListing, InputUnusable, RemoteFile
from support.workers.attempts import attempt_of, some_grant
from support.workers.http_bed import http_bed

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from support.workers.worker import Bed

TRAINS = """
import os, pathlib
out = pathlib.Path(os.environ["FORGE_OUTPUT_DIR"])
(out / "model.pt").write_bytes(b"weights" * 1000)
with (out / "large").open("wb") as large:
    large.truncate((32 << 20) + 5)
(out / "tok").mkdir()
(out / "tok" / "empty").touch()
(out / "tok" / "vocab").write_text("a b")
(out / "tok" / "alias").symlink_to("vocab")
saved = pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"])
(saved / "state").write_text("step 1")
"""
# Tells what it finds, and whether it could change that.
READS = """
import json, os, pathlib, sys
seen = {}
for name in sys.argv[1:]:
    place = pathlib.Path(os.environ.get(name, name))
    files = {str(p.relative_to(place)): p.read_text() for p in place.rglob("*") if p.is_file()}
    modes = {p.stat().st_mode & 0o222 for p in (place, *place.rglob("*"))}
    # Root could, in a process; in a container it is another user.
    writable = os.access(place, os.W_OK) if os.geteuid() else modes != {0}
    seen[name] = [str(place), files, writable]
pathlib.Path(os.environ["FORGE_OUTPUT_DIR"], "seen.json").write_text(json.dumps(seen))
"""


def seen(bed: Bed, job: int) -> dict[str, Any]:
    bed.succeeds(job)
    found: dict[str, Any] = json.loads(bed.artifacts(job)["seen.json"])
    return found


def trained(bed: Bed) -> int:
    job = bed.script(TRAINS, checkpoint_interval_s=0.1)
    bed.succeeds(job)
    return job


def sets(bed: Bed) -> Path:
    folder = bed.root / "sets"
    folder.mkdir()
    (folder / "one").write_text("1")
    return folder


def test_a_job_reads_what_another_one_has_stored_and_folders_of_the_machine(both: Bed) -> None:
    folder = sets(both)
    worker = both.worker(offer_folders=f"{folder},named={folder}")
    job = trained(both)
    inputs = {
        "base": f"artifact:{job}/model.pt",
        "tok": f"artifact:{job}/tok",
        "state": f"checkpoint:{job}",
        "set": "folder:named",
    }
    names = [f"FORGE_INPUT_{name.upper()}" for name in inputs]
    if both.kind == "docker":
        inputs["/mnt/set"] = f"folder:{folder}"
        names.append("/mnt/set")
    told = seen(both, both.script(READS, *names, inputs=inputs))
    places, found, writable = zip(*told.values(), strict=True)
    assert not any(writable[:3])
    assert both.kind == "process" or not any(writable)
    assert found == (
        {"model.pt": "weights" * 1000},
        {"vocab": "a b", "alias": "a b", "empty": ""},
        {"state": "step 1"},
        *[{"one": "1"}] * (len(inputs) - 3),
    )
    if both.kind == "docker":
        assert places == (*(f"/forge/inputs/{n}" for n in list(inputs)[:4]), "/mnt/set")
    # A second job of the same owner has them at once.
    again = both.script(READS, names[0], inputs={"base": inputs["base"]})
    assert seen(both, again)[names[0]][1] == {"model.pt": "weights" * 1000}
    assert b"fetching" not in both.log(again)
    assert len(list((worker.folder / "inputs").glob("[0-9a-f]*/complete"))) == 3


def test_an_input_that_nobody_has_stored_is_refused_at_submit(process: Bed) -> None:
    process.worker()
    job = trained(process)
    other = process.submit("true", owner="bob", after_ok=[])
    process.succeeds(other)
    running = process.submit("sleep", "600")
    refused = {
        f"artifact:{job}/nothing": rf"is not there: job {job} has no artifact 'nothing'",
        f"checkpoint:{job}:9.1": rf"job {job} has no such checkpoint",
        f"artifact:{other}": rf"{other}",
        "artifact:123456": "123456",
        f"artifact:{running}/x": f"job {running} has not ended",
    }
    for source, why in refused.items():
        with pytest.raises((InputUnknown, JobUnknown), match=why):
            process.submit("true", inputs={"x": source})
    waits = process.submit("true", inputs={"x": f"artifact:{running}/x"}, after_any=[running])
    process.queue.cancel(running)
    # What it waited for has ended without it: no worker can help.
    row = process.ended(waits)
    assert process.reasons(waits) == ["start_failed"] * 2
    assert f"the input x=artifact:{running}/x cannot be used: job {running} has no" in row["detail"]


def test_a_folder_that_no_worker_offers_is_waited_for_and_explained(process: Bed) -> None:
    worker = process.worker()
    folder = sets(process)
    job = process.submit("true", inputs={"set": "folder:set"})
    assert explain(process.database, job).text == "no online worker has the folder set (1 checked)"
    worker.leave()
    process.worker("two", offer_folders=f"set={folder}")
    process.succeeds(job)
    refused = process.begin("three", offer_folders="here=/root/..")
    assert refused.process.wait(60) == 1
    assert "the folder 'here=/root/..' cannot be offered to jobs" in refused.output


def test_a_worker_over_http_reads_the_inputs_that_a_job_names_and_no_others(
    tmp_path: Path, database_url: str
) -> None:
    with http_bed(tmp_path, database_url) as bed:
        worker = bed.worker()
        job = trained(bed)
        inputs = {"base": f"artifact:{job}", "state": f"checkpoint:{job}:1.0"}
        told = seen(bed, bed.script(READS, "FORGE_INPUT_STATE", inputs=inputs))
        assert told["FORGE_INPUT_STATE"][1] == {"state": "step 1"}
        (large,) = (worker.folder / "inputs").glob("*/files/large")
        assert large.stat().st_size == (32 << 20) + 5
        assert (large.parent / "tok" / "alias").read_text() == "a b"


def test_a_worker_gets_files_only_of_the_jobs_that_inputs_name(tmp_path: Path) -> None:
    lease = OwnLease(Fence(9, 1, uuid4()), 1, None, None, input_jobs=[7])
    store = FileStore(tmp_path)
    kinds = ("artifacts/a/b", "chunked/a", "chunks/c", "checkpoints/000001.json")
    assert all(may_get(lease, f"jobs/7/1-2-ab/{kind}", store) for kind in kinds)
    others = ("jobs/77/1-2-ab/artifacts/a", "jobs/7/1-2-ab/logs/0", "jobs/7/1-2/../../8/1/chunks/c")
    assert not any(may_get(lease, key, store) for key in others)
    nothing = OwnLease(Fence(9, 1, uuid4()), 1, None, None)
    assert not may_get(nothing, "jobs/7/1-2-ab/artifacts/a", store)


@dataclass
class Shelf:
    """A source with files of our own, which counts what is read, and stops when told to."""

    files: dict[str, bytes]
    attempt: LiveAttempt
    stops_after: int = 1 << 60
    read_parts: list[tuple[str, int]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def listing(self) -> InputListing:
        contents = {path: sha256(data).hexdigest() for path, data in self.files.items()}
        files = [RemoteFile(path, len(data), path) for path, data in self.files.items()]
        return InputListing("now", files, contents)

    def expect(self, extents: Sequence[Extent]) -> None: ...

    def read(self, extent: Extent) -> Generator[bytes, None, None]:
        with self.lock:
            self.read_parts.append((extent.key, extent.offset))
        yield self.files[extent.key][extent.offset : extent.offset + extent.size]
        with self.lock:
            self.stops_after -= 1
            if not self.stops_after:
                self.attempt.stopping.set()


LARGE = bytes(range(1, 251)) * (CHUNK_BYTES * 2 // 250 + 1)


def cache_in(root: Path, most_bytes: int = 1 << 30) -> InputCache:
    return InputCache(LruFolders(root / "inputs", root / "jobs", most_bytes), 0)


def attempt_in(root: Path, job_id: int) -> LiveAttempt:
    return attempt_of(some_grant(job_id), root / "jobs" / str(job_id))


def test_a_fetch_that_was_interrupted_keeps_what_is_whole_and_fetches_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"a/large": LARGE, "a/empty": b"", **{f"b/{n}": b"%d" % n for n in range(200)}}
    first = Shelf(files, attempt_in(tmp_path, 1), stops_after=2)
    with pytest.raises(Stopped):
        cache_in(tmp_path).fetch(first, "shelf", first.attempt, "x")
    (folder,) = (path for path in (tmp_path / "inputs").iterdir() if path.name[0] != ".")
    assert not (folder / "complete").exists()
    journal = folder / "journal"
    whole = [tuple(json.loads(line)[:2]) for line in journal.read_text().splitlines()]
    assert whole
    # As a power cut leaves it: a part that was noted is torn, and a line is cut off.
    torn = whole[0]
    with (folder / "files" / torn[0]).open("r+b") as file:
        file.seek(torn[1])
        file.write(b"\0")
    journal.write_text(journal.read_text() + '["a/la')
    (folder / "files" / "stray").touch()

    second = Shelf(files, attempt_in(tmp_path, 2))
    place, found = cache_in(tmp_path).fetch(second, "shelf", second.attempt, "x")
    assert {path: (place / path).read_bytes() for path in files} == files
    assert sorted(p.name for p in place.iterdir()) == ["a", "b"]
    assert found.bytes == sum(map(len, files.values()))
    everything = {(path, 0) for path in files} | {
        ("a/large", offset) for offset in range(0, len(LARGE), CHUNK_BYTES)
    }
    assert set(second.read_parts) == everything - {*whole} | {torn}

    # The next one reads nothing, unless somebody has changed it.
    third = Shelf(files, attempt_in(tmp_path, 3))
    assert cache_in(tmp_path).fetch(third, "shelf", third.attempt, "x") == (place, found)
    assert not third.read_parts
    (place / "b" / "7").chmod(0o644)
    (place / "b" / "7").write_bytes(b"8")
    assert cache_in(tmp_path).fetch(third, "shelf", third.attempt, "x") == (place, found)
    assert third.read_parts == [("b/7", 0)]
    assert (place / "b" / "7").read_bytes() == b"7"

    # After a power cut, files may have lost what was in them, and still look the same.
    file = place / "b" / "8"
    status = file.stat()
    file.chmod(0o644)
    file.write_bytes(b"\0")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    monkeypatch.setattr("forge_worker.prepare.inputs.cache.this_boot", lambda: "the next one")
    for _ in range(2):
        assert cache_in(tmp_path).fetch(third, "shelf", third.attempt, "x") == (place, found)
        assert third.read_parts == [("b/7", 0), ("b/8", 0)]
    assert file.read_bytes() == b"8"


def test_inputs_are_evicted_by_size_but_none_in_use_and_one_without_room_is_refused(
    tmp_path: Path,
) -> None:
    cache = cache_in(tmp_path, most_bytes=25 << 10)
    places = {}
    for job_id in (1, 2, 3):
        attempt = attempt_in(tmp_path, job_id)
        shelf = Shelf({"x": b"%d" % job_id * (10 << 10)}, attempt)
        places[job_id], _ = cache.fetch(shelf, "shelf", attempt, "x")
        if job_id == 1:
            attempt.folders.remove()
    assert [job_id for job_id, place in places.items() if place.exists()] == [2, 3]
    # Another owner's is another folder, even if it is the same.
    attempt = attempt_in(tmp_path, 4)
    attempt.grant = replace(attempt.grant, owner="bob")
    shelf = Shelf({"x": b"3" * (10 << 10)}, attempt)
    assert cache.fetch(shelf, "shelf", attempt, "x")[0] != places[3]
    assert places[3].exists()
    full = InputCache(LruFolders(tmp_path / "inputs", tmp_path / "jobs", 1), 1 << 60)
    with pytest.raises(InputUnusable, match="do not fit on the disk of this worker"):
        full.fetch(Shelf({"y": b"1"}, attempt), "shelf", attempt, "x")
