"""The last checkpoint of a killed program: what it was writing is left out, and nothing else."""

from __future__ import annotations

import json
import mmap
import os
import time
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from forge_worker.files.kills import Kill
from forge_worker.files.rest import in_memory
from forge_worker.job_io import checkpoints
from forge_worker.job_io.checkpoints import CheckpointSync
from support.services import require
from support.workers.attempts import Desk, desk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forge_worker.attempt import LiveAttempt
    from support.workers.worker import Bed

LIMIT_MB = 10
MS, S = 1_000_000, 1_000_000_000
OLD, NEW = b"\0the old version", b"\0the new version"
MEMORY = Path("/dev/shm")  # noqa: S108  the point of the test
LONG_AGO = 1_000_000_000


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Desk]:
    with desk(database_url, tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "PAUSE_S", 0)


def sync_of(here: Desk, attempt: LiveAttempt) -> CheckpointSync:
    return CheckpointSync(attempt, here.store, here.gateway, LIMIT_MB)


def stored(here: Desk, attempt: LiveAttempt) -> dict[str, bytes]:
    """Return the files of the newest checkpoint."""
    row = here.gateway.latest_checkpoint(attempt.fence.job_id)
    files = json.loads(here.store.get(row["key"]))["files"] if row else []
    return {file["path"]: here.store.get(file["key"]) for file in files}


def end(sync: CheckpointSync, killed: Kill | None) -> None:
    sync.program.kill = killed
    sync.program.over = True
    sync.step()


def in_place(path: Path) -> int:
    """Rewrite a file in place, in a folder that did not change since; return the time of it."""
    path.write_bytes(NEW)
    at_ns = path.stat().st_mtime_ns
    os.utime(path.parent, ns=(LONG_AGO, LONG_AGO))
    return at_ns


def renamed(path: Path) -> int:
    """Write a file elsewhere and rename it."""
    new = path.parent.parent / "control" / "new"
    new.write_bytes(NEW)
    at_ns = new.stat().st_mtime_ns - MS
    os.utime(new, ns=(at_ns, at_ns))
    new.rename(path)
    os.utime(path.parent, ns=(LONG_AGO, LONG_AGO))
    return at_ns


def then_another(path: Path) -> int:
    """Rewrite a file in place, then make another beside it."""
    at_ns = in_place(path)
    os.utime(path.parent, ns=(at_ns + MS, at_ns + MS))
    return at_ns


def of_another_clock(path: Path) -> int:
    at_ns = in_place(path)
    os.utime(path, ns=(at_ns + 3600 * S, at_ns + 3600 * S))
    return at_ns


def emptied(path: Path) -> int:
    path.write_bytes(b"")
    return path.stat().st_mtime_ns


@pytest.mark.parametrize(
    ("write", "killed_after_ns", "asked", "kept"),
    [
        (in_place, MS, False, OLD),
        (in_place, 5 * S, False, NEW),
        (of_another_clock, MS, False, OLD),
        (of_another_clock, 5 * S, False, NEW),
        (renamed, MS, False, NEW),
        (then_another, MS, False, NEW),
        (emptied, MS, False, OLD),
        # Told to stop: it died of the signal, or handled it and saved.
        (in_place, MS, True, OLD),
        (in_place, -S, True, NEW),
    ],
)
def test_what_was_being_written_keeps_its_version_and_what_was_complete_is_stored(
    here: Desk, write: Callable[[Path], int], killed_after_ns: int, *, asked: bool, kept: bytes
) -> None:
    attempt = here.attempt()
    path, sync = attempt.folders.checkpoint / "model", sync_of(here, attempt)
    path.write_bytes(OLD)
    sync.step()
    at_ns = write(path)
    end(sync, Kill(at_ns + killed_after_ns, asked=asked))
    assert stored(here, attempt) == {"model": kept}
    words = "keeps their last stored version: 'model', being written when the program was killed"
    assert attempt.folders.log.read_text().count(words) == (kept is OLD)


def test_what_a_look_stored_after_the_kill_is_judged_again_at_the_end(here: Desk) -> None:
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    (folder / "model").write_bytes(OLD)
    (folder / "other").write_bytes(OLD)
    sync.step()
    (folder / "other").write_bytes(NEW)
    at_ns = in_place(folder / "model")
    killed = Kill(at_ns + MS)
    # Nobody has it open any more, and the end was not noticed yet.
    sync.step()
    assert stored(here, attempt)["model"] == NEW
    os.utime(folder / "other", ns=(LONG_AGO, LONG_AGO))
    end(sync, killed)
    assert stored(here, attempt) == {"model": OLD, "other": NEW}


def test_a_program_that_exits_stores_what_it_wrote_last(here: Desk) -> None:
    attempt = here.attempt()
    path, sync = attempt.folders.checkpoint / "model", sync_of(here, attempt)
    path.write_bytes(OLD)
    sync.step()
    in_place(path)
    end(sync, None)
    assert stored(here, attempt) == {"model": NEW}


def test_a_file_that_shows_that_it_is_whole_is_stored_whenever_it_was_written(here: Desk) -> None:
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (4,), }\n"
    array = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + bytes(32)
    files = {"a.npy": array, "b.json": b'{"step": 5}', "c.log": b"one\n" * 2000, "d": b"step 5"}
    for name in files:
        (folder / name).write_bytes(OLD)
    sync.step()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    os.utime(folder, ns=(LONG_AGO, LONG_AGO))
    end(sync, Kill(time.time_ns()))
    assert stored(here, attempt) == files


@pytest.mark.parametrize("then", ["names it", "names the folder", "makes another", "works on"])
def test_a_file_in_a_steps_folder_is_complete_once_the_program_went_on(
    here: Desk, then: str
) -> None:
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    step = folder / "step-7"
    step.mkdir()
    at_ns = in_place(step / "rank_0.msg")
    said = {"names it": "1 rank_0.msg\n", "names the folder": "step-7", "works on": "step-77"}
    if then == "makes another":
        (folder / "step-8").mkdir()
    else:
        place = step if then == "names it" else folder
        (place / "latest").write_text(said[then])
        os.utime(place / "latest", ns=(at_ns + MS, at_ns + MS))
        os.utime(place, ns=(LONG_AGO, LONG_AGO))
    end(sync, Kill(at_ns + 10 * MS))
    assert ("step-7/rank_0.msg" in stored(here, attempt)) is (then != "works on")


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("model-0000%d-of-00003.bin", "model.bin.index.json"),
        ("ckpt.data-0000%d-of-00003", "ckpt.index"),
        ("latest/__%d_0.distcp", "latest/.metadata"),
        ("__%d_0.distcp", ".metadata"),
    ],
)
@pytest.mark.parametrize("saves", [1, 2])
def test_parts_of_one_whole_are_stored_of_one_save(
    here: Desk, name: str, index: str, saves: int
) -> None:
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    names = [*(name % number for number in range(3)), index]
    (folder / index).parent.mkdir(exist_ok=True)
    begin_ns = time.time_ns() - 5 * S

    def save(number: int, *written: str) -> None:
        for path in (folder / each for each in written):
            path.write_bytes(OLD if number == 0 else NEW)
            at_ns = begin_ns + number * S + names.index(path.relative_to(folder).as_posix()) * MS
            os.utime(path, ns=(at_ns, at_ns))

    save(0, *names)
    sync.step()
    for number in range(1, saves):
        save(number, *names)
    # Each is complete, and the next one is not begun: for a while, or when a kill comes.
    save(saves, *names[:2])
    sync.step()
    sync.step()
    assert stored(here, attempt) == dict.fromkeys(names, OLD)
    end(sync, Kill(time.time_ns()))
    assert stored(here, attempt) == dict.fromkeys(names, OLD)
    assert "keeps their last stored version" in attempt.folders.log.read_text()


def test_some_parts_alone_are_stored_once_they_are_left_alone(here: Desk) -> None:
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    names = ["data-00001-of-00003.bin", "data-00002-of-00003.bin"]
    (folder / names[0]).write_bytes(OLD)
    os.utime(folder / names[0], ns=(LONG_AGO, LONG_AGO))
    sync.step()
    # One more is no other version of any.
    (folder / names[1]).write_bytes(OLD)
    end(sync, Kill(time.time_ns() + 3 * S))
    assert stored(here, attempt) == dict.fromkeys(names, OLD)
    later = LONG_AGO + 60 * S
    (folder / names[1]).write_bytes(NEW)
    os.utime(folder / names[1], ns=(later, later))
    sync.step()
    assert stored(here, attempt) == {names[0]: OLD, names[1]: NEW}


def test_parts_that_are_written_one_after_the_other_are_stored_as_they_come(here: Desk) -> None:
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    begin_ns = time.time_ns() - 20 * S
    names = [f"data-0000{number}-of-00009.bin" for number in range(5)]
    for number, name in enumerate(names[1:], 1):
        # The one before it was stored when it was half.
        for path, data in ((names[number - 1], NEW), (name, OLD)):
            (folder / path).write_bytes(data)
            os.utime(folder / path, ns=(begin_ns + number * S, begin_ns + number * S))
        sync.step()
    end(sync, Kill(time.time_ns()))
    assert stored(here, attempt) == {**dict.fromkeys(names, NEW), names[-1]: OLD}


@pytest.mark.parametrize("cut", ["between two files", "in a file", "in none"])
def test_a_save_is_stored_with_all_of_its_files_or_none(here: Desk, cut: str) -> None:
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    names = ["model", "optimizer", "scheduler"]
    old, new = b"old\n" * 1000, b"new\n" * 1000

    def save(data: bytes, since_ns: int, *written: str) -> None:
        for number, path in enumerate(folder / each for each in written):
            path.write_bytes(data)
            os.utime(path, ns=(since_ns + number * 200 * MS, since_ns + number * 200 * MS))

    save(old, time.time_ns() - 60 * S, *names)
    sync.step()
    killed_ns = time.time_ns()
    save(new, killed_ns - (5 * S if cut == "in none" else 300 * MS), *names[:2])
    whole = {"model": new, "optimizer": new} if cut == "in none" else dict.fromkeys(names, old)
    with (folder / names[2]).open("r+b") as file:
        for size in (100, 200):
            if cut == "in a file":
                file.truncate(size)
            sync.step()
            assert stored(here, attempt) == {"scheduler": old, **whole}
    end(sync, Kill(killed_ns))
    assert stored(here, attempt) == {"scheduler": old, **whole}
    assert (b"killed in a save" in attempt.folders.log.read_bytes()) is (cut != "in none")


@pytest.mark.parametrize("begun", [[], ["state.orbax-checkpoint-tmp/model"], ["state/model"]])
def test_what_a_program_removes_before_it_saves_anew_stays_if_it_is_killed_meanwhile(
    here: Desk, begun: list[str]
) -> None:
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    (folder / "state").mkdir()
    names = ["state/model", "state/optimizer"]
    for number, name in enumerate(names):
        (folder / name).write_bytes(b"old\n")
        at_ns = time.time_ns() - 60 * S + number * 200 * MS
        os.utime(folder / name, ns=(at_ns, at_ns))
    sync.step()
    rmtree(folder / "state")
    for name in begun:
        (folder / name).parent.mkdir()
        (folder / name).write_bytes(b"new\n")
    sync.step()
    assert stored(here, attempt) == dict.fromkeys(names, b"old\n")
    end(sync, Kill(time.time_ns()))
    assert stored(here, attempt) == dict.fromkeys(names, b"old\n")


def test_what_a_handler_of_sigterm_saved_last_is_stored_without_the_rest(here: Desk) -> None:
    attempt, told_ns = here.attempt(), time.time_ns() - S
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    # In the order of every save in which the model was the best so far.
    for data, at_ns, names in ((OLD, told_ns - 60 * S, "ab"), (NEW, told_ns, "a")):
        for number, path in enumerate(map(folder.joinpath, names), 1):
            path.write_bytes(data)
            os.utime(path, ns=(at_ns + 100 * MS * number,) * 2)
        sync.step()
    end(sync, Kill(told_ns, asked=True))
    assert stored(here, attempt) == {"a": NEW, "b": OLD}


def test_a_half_first_version_is_left_out_and_a_log_counts_up_to_its_last_line(here: Desk) -> None:
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    (folder / "model").write_bytes(NEW)
    (folder / "train.log").write_bytes(b"one\n" * 2000 + b"tw")
    (folder / "before").write_bytes(OLD)
    os.utime(folder / "before", ns=(LONG_AGO, LONG_AGO))
    os.utime(folder, ns=(LONG_AGO, LONG_AGO))
    end(sync, Kill(time.time_ns()))
    assert stored(here, attempt) == {"before": OLD, "train.log": b"one\n" * 2000}
    assert "is stored without them: 'model', being written" in attempt.folders.log.read_text()


def test_a_file_that_was_open_and_not_written_to_since_is_not_complete(here: Desk) -> None:
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    for name in ("open", "closed"):
        (folder / name).write_bytes(OLD)
    sync.step()
    with (folder / "open").open("wb", 0) as still, (folder / "closed").open("wb", 0) as then:
        still.write(NEW)
        then.write(NEW)
        sync.step()
        then.write(NEW)
    end(sync, Kill(time.time_ns() + 10 * S))
    assert stored(here, attempt) == {"open": OLD, "closed": NEW + NEW}


def test_a_file_that_is_changed_in_place_all_the_time_is_stored_at_last(here: Desk) -> None:
    attempt = here.attempt()
    path, sync = attempt.folders.checkpoint / "rows.dat", sync_of(here, attempt)
    path.write_bytes(bytes(8192))
    with path.open("r+b", 0) as file, mmap.mmap(file.fileno(), 8192) as rows:
        for number in range(1, 4):
            rows[:2] = bytes([0, number])
            rows.flush()
            os.utime(path)
            sync.step()
        assert stored(here, attempt) == {}
        assert "save a copy of the array now and then" in attempt.folders.log.read_text()
    os.utime(path.parent, ns=(LONG_AGO, LONG_AGO))
    end(sync, Kill(time.time_ns()))
    assert stored(here, attempt)["rows.dat"][:2] == b"\0\3"


@pytest.fixture
def in_ram(database_url: str) -> Iterator[Desk]:
    require(MEMORY.is_dir() and in_memory(MEMORY.stat().st_dev), "a file system in memory")
    with TemporaryDirectory(dir=MEMORY) as root, desk(database_url, Path(root)) as made:
        yield made


def test_in_memory_a_mapped_file_is_stored_as_it_was_at_the_end(in_ram: Desk) -> None:
    attempt = in_ram.attempt()
    path, sync = attempt.folders.checkpoint / "rows.npy", sync_of(in_ram, attempt)
    path.write_bytes(bytes(8192))
    with path.open("r+b", 0) as file, mmap.mmap(file.fileno(), 8192) as rows:
        # Only the first write to a page leaves a trace.
        rows[:2] = b"\0\0"
        os.utime(path, ns=(LONG_AGO, LONG_AGO))
        # Open, and by its times quiet for long; but a part of a change may be there.
        for number in range(1, 4):
            rows[:2] = bytes([0, number])
            rows.flush()
            sync.step()
        assert path.stat().st_mtime_ns == LONG_AGO
        assert stored(in_ram, attempt) == {}
    sync.step()
    sync.step()
    assert stored(in_ram, attempt)["rows.npy"][:2] == b"\0\3"
    # It is opened once more, after it was stored.
    with path.open("r+b", 0) as file, mmap.mmap(file.fileno(), 8192) as rows:
        rows[:2] = b"\0\4"
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    end(sync, None)
    assert stored(in_ram, attempt)["rows.npy"][:2] == b"\0\4"


def test_what_was_stored_while_it_was_open_is_read_again_at_the_end(here: Desk) -> None:
    attempt = here.attempt()
    path, sync = attempt.folders.checkpoint / "rows", sync_of(here, attempt)
    path.write_bytes(OLD)
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    with path.open("r+b", 0) as file:
        sync.step()
        assert stored(here, attempt) == {"rows": OLD}
        file.write(NEW)
        # As a write to a page that waits to be written to the disk.
        os.utime(path, ns=(LONG_AGO, LONG_AGO))
        sync.step()
        assert stored(here, attempt) == {"rows": OLD}
    end(sync, None)
    assert stored(here, attempt) == {"rows": NEW}


HALF_SAVES = """
import os, pathlib, signal, sys, threading, time
folder = pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"])
state, model, beside = folder / "state", folder / "model", folder / "beside"
if model.exists():
    print("resumed with", model.read_bytes()[:4], len(model.read_bytes()), beside.read_bytes())
    sys.exit(0)
model.write_bytes(b"\\0one" * 100_000)
print("up", flush=True)
while not pathlib.Path("go").exists():
    threading.Event().wait(0.05)
(folder / "new").write_bytes(b"\\0two")
(folder / "new").rename(beside)
threading.Event().wait(0.1)
with model.open("wb") as file:
    for _ in range(1000):
        file.write(b"\\0two" * 10)
        file.flush()
    if sys.argv[1] == "itself":
        os.kill(os.getpid(), signal.SIGKILL)
    print("half", flush=True)
    while True:
        file.write(b"\\0two")
        file.flush()
        threading.Event().wait(0.001)
"""


@pytest.mark.parametrize("by", ["itself", "preempted"])
def test_a_program_killed_in_a_save_resumes_with_its_last_whole_one(
    both: Bed, by: str, eventually: Callable[..., None]
) -> None:
    worker = both.worker()
    job = both.script(HALF_SAVES, by, checkpoint_interval_s=1, max_failures=1)
    both.says(job, "up")
    eventually(lambda: both.jobs.checkpoints(job))
    next(worker.folder.glob("jobs/*/work")).joinpath("go").touch()
    if by == "preempted":
        both.says(job, "half")
        both.queue.preempt(job)
    both.succeeds(job)
    said = both.log(job)
    assert rb"resumed with b'\x00one' 400000 b'\x00two'" in said
    assert b"'model', being written when the program was killed" in said


SAVES_AT_THE_END = """
import os, pathlib, signal, threading
model = pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"], "model")
if model.exists():
    print("resumed with", model.read_bytes()[:4], flush=True)
    raise SystemExit
def leave(*_):
    model.write_bytes(b"\\0two" * 1000)
    raise SystemExit(0)
signal.signal(signal.SIGTERM, leave)
model.write_bytes(b"\\0one" * 1000)
print("up", flush=True)
while not os.path.exists("go"):
    threading.Event().wait(0.01)
for pid in (os.getppid(), os.getpid()):
    os.kill(pid, signal.SIGTERM)
threading.Event().wait()
"""


def test_what_a_program_saves_when_others_stop_it_is_whole(
    process: Bed, eventually: Callable[..., None]
) -> None:
    worker = process.worker()
    job = process.script(SAVES_AT_THE_END, checkpoint_interval_s=1, max_losses=1)
    process.says(job, "up")
    eventually(lambda: process.jobs.checkpoints(job))
    next(worker.folder.glob("jobs/*/work")).joinpath("go").touch()
    process.succeeds(job)
    assert rb"resumed with b'\x00two'" in process.log(job)
