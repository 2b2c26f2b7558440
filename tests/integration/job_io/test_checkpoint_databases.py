"""Databases that programs have open, and other files that belong together, are stored as one."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest
from forge_worker.files import database_moments as moments
from forge_worker.files import groups
from forge_worker.files.copies import steady_copy
from forge_worker.files.database_moments import copied_lmdb
from forge_worker.files.formats.records import masked
from forge_worker.files.safe_files import copy
from forge_worker.job_io import checkpoints, snapshots
from forge_worker.job_io.checkpoints import SAVE_STEPS, CheckpointSync
from support.waiting import eventually
from support.workers.attempts import Desk, desk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import IO, Any, BinaryIO

    from forge_worker.attempt import LiveAttempt

LIMIT_MB = 100
LONG_AGO = 1_000_000_000
# Another process has the database open: this one's locks would not count for itself.
PROGRAM = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
for line in sys.stdin:
    print(db.execute(line).fetchall(), flush=True)
"""
WRITES = """
import itertools, sqlite3, sys, threading
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode=" + sys.argv[2])
db.execute("PRAGMA synchronous=OFF")
db.execute("CREATE TABLE h (step INTEGER PRIMARY KEY, note TEXT)")
db.execute("CREATE INDEX i ON h(note)")
for step in itertools.count():
    db.execute("INSERT INTO h VALUES (?, ?)", (step, str(step * 7919 % 1000) * 40))
    threading.Event().wait(0.001)
    if step == 100:
        print("begun", flush=True)
"""


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Desk]:
    with desk(database_url, tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "PAUSE_S", 0)
    monkeypatch.setattr(groups, "PAIR_NS", 0)


def sync_of(here: Desk, attempt: LiveAttempt) -> CheckpointSync:
    return CheckpointSync(attempt, here.store, here.gateway, LIMIT_MB)


@contextmanager
def program(code: str, *words: str) -> Iterator[tuple[IO[str], IO[str]]]:
    """Run a program, and kill it at the end of the block."""
    command = [sys.executable, "-c", code, *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        try:
            yield running.stdin, running.stdout
        finally:
            running.kill()


@contextmanager
def statements(path: Path) -> Iterator[Callable[[str], str]]:
    """Run statements in a process that keeps its database open."""
    with program(PROGRAM, str(path)) as (given, said):

        def run(statement: str) -> str:
            print(statement, file=given, flush=True)
            return said.readline()

        yield run


def stored(here: Desk, attempt: LiveAttempt, into: Path) -> dict[str, bytes]:
    """Return the files of the newest checkpoint, and put them into a folder."""
    row = here.gateway.latest_checkpoint(attempt.fence.job_id)
    files = json.loads(here.store.get(row["key"]))["files"] if row else []
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    found = {file["path"]: here.store.get(file["key"]) for file in files}
    for path, data in found.items():
        (into / path).parent.mkdir(parents=True, exist_ok=True)
        (into / path).write_bytes(data)
    return found


def rows(path: Path) -> int:
    """Return how many rows an intact database has."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return int(db.execute("SELECT count(*) FROM h").fetchone()[0])


def said(attempt: LiveAttempt, words: str) -> int:
    return attempt.folders.log.read_text().count(words)


def test_a_database_is_never_stored_with_an_older_log(here: Desk, tmp_path: Path) -> None:
    attempt = here.attempt()
    sync, path = sync_of(here, attempt), attempt.folders.checkpoint / "run.db"
    with statements(path) as run:
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA wal_autocheckpoint=0")
        run("CREATE TABLE h (step INTEGER PRIMARY KEY, note TEXT)")
        insert = (
            "WITH RECURSIVE s(v) AS (SELECT {} UNION ALL SELECT v+1 FROM s WHERE v < {})"
            " INSERT INTO h SELECT v, printf('%0400d', v * 7919 % 1000) FROM s"
        )
        run(insert.format(1, 300))
        for name in ("run.db", "run.db-wal"):
            os.utime(attempt.folders.checkpoint / name, ns=(LONG_AGO, LONG_AGO))
        sync.step()
        sync.step()
        assert stored(here, attempt, tmp_path / "out").keys() == {"run.db", "run.db-wal"}
        assert rows(tmp_path / "out" / "run.db") == 300
        # SQLite's own checkpoint writes the database; then its log begins anew, and is written to.
        run("PRAGMA wal_checkpoint(RESTART)")
        run(insert.format(301, 310))
        run("DELETE FROM h WHERE step < 200")
        os.utime(path, ns=(LONG_AGO, LONG_AGO))
        sync.step()
        sync.step()
        stored(here, attempt, tmp_path / "out")
        assert rows(tmp_path / "out" / "run.db") == 111
        # Of use only to the processes that have it open.
        assert (attempt.folders.checkpoint / "run.db-shm").exists()


def test_a_log_makes_good_what_was_written_to_its_database_during_a_copy(
    here: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = here.attempt()
    sync, path = sync_of(here, attempt), attempt.folders.checkpoint / "run.db"
    many = "WITH RECURSIVE s(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM s WHERE v < 900)"
    with statements(path) as run:
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA wal_autocheckpoint=0")
        run("CREATE TABLE h (step INTEGER PRIMARY KEY, note TEXT)")
        run(f"{many} INSERT INTO h SELECT v, printf('%0400d', v) FROM s")
        run("PRAGMA wal_checkpoint(PASSIVE)")
        run("DELETE FROM h WHERE step % 2")
        run("UPDATE h SET note = printf('%0800d', step)")

        def copied(file: BinaryIO, into: Path, size: int, go_on: Callable[[], None]) -> None:
            """Copy the first half, and the other one when SQLite has written to both."""
            copy(file, into, size, go_on)
            if into.read_bytes().startswith(b"SQLite format 3"):
                run("PRAGMA wal_checkpoint(PASSIVE)")
                half = size // 8192 * 4096
                with into.open("r+b") as torn:
                    torn.seek(half)
                    torn.write(os.pread(file.fileno(), size - half, half))

        monkeypatch.setattr(moments, "copy", copied)
        monkeypatch.setattr(moments, "LEAST_TRIES", 1)
        monkeypatch.setattr(moments, "TRY_NS", 0)
        sync.step()
    assert stored(here, attempt, tmp_path / "out").keys() == {"run.db", "run.db-wal"}
    assert rows(tmp_path / "out" / "run.db") == 450
    assert said(attempt, "being written") == 0


@pytest.mark.parametrize("mode", ["WAL", "DELETE", "TRUNCATE", "PERSIST"])
def test_a_database_that_is_written_to_all_the_time_is_stored_and_intact(
    here: Desk, tmp_path: Path, mode: str
) -> None:
    attempt = here.attempt()
    sync, path = sync_of(here, attempt), attempt.folders.checkpoint / "study.sqlite3"
    found = list[int]()
    with program(WRITES, str(path), mode) as (_, lines):
        assert lines.readline() == "begun\n"
        inode = path.stat().st_ino

        def stores_more() -> bool:
            sync.step()
            stored(here, attempt, tmp_path / "out")
            if (tmp_path / "out" / path.name).exists():
                found.append(rows(tmp_path / "out" / path.name))
            return len(set(found)) > 2

        eventually(stores_more)
        assert path.stat().st_ino == inode
    assert found == sorted(found)
    # Its program was killed, which leaves a log: both are stored.
    sync.program.over = True
    sync.step()
    stored(here, attempt, tmp_path / "out")
    assert rows(tmp_path / "out" / path.name) >= found[-1]


def test_an_event_file_that_stays_open_is_stored_up_to_its_last_whole_record(
    here: Desk, tmp_path: Path
) -> None:
    attempt = here.attempt()
    sync, path = sync_of(here, attempt), attempt.folders.checkpoint / "events.out.tfevents.1.host"
    head = struct.pack("<Q", 5)
    record = head + struct.pack("<I", masked(head)) + b"\0\1\2\3\4" + struct.pack("<I", 7)
    with path.open("wb", buffering=0) as events:
        events.write(record * 3 + record[:9])
        sync.step()
        events.write(record[9:] + record[:4])
        sync.step()
        assert stored(here, attempt, tmp_path / "out") == {path.name: record * 4}
        events.write(record[4:])
        sync.step()
        assert stored(here, attempt, tmp_path / "out") == {path.name: record * 5}
    assert said(attempt, "being written") == 0


def page(number: int, last: int) -> bytes:
    """Return LMDB's description of a state, as its header file lays it out."""
    head = struct.pack("<QHHI", number & 1, 0, 8, 0)
    meta = struct.pack("<IIQQ", 0xBEEFC0DE, 1, 0, 1 << 24)
    free, main = struct.pack("<IHHQQQQQ", 4096, 8, 1, 0, 1, 0, 1, 2), bytes(48)
    return (head + meta + free + main + struct.pack("<QQ", last, number)).ljust(4096, b"\0")


@pytest.mark.parametrize(("commits", "whole"), [(0, True), (1, True), (2, False)])
def test_a_state_of_lmdb_is_whole_until_two_others_were_committed(
    tmp_path: Path, commits: int, *, whole: bool
) -> None:
    path = tmp_path / "data.mdb"
    beginning = page(6, 2) + page(7, 3)
    path.write_bytes(beginning + b"a" * 4096 + b"b" * 4096 + b"beyond" * 4096)

    def commit() -> None:
        with path.open("r+b") as file:
            for number in range(8, 8 + commits):
                file.seek(number % 2 * 4096)
                file.write(page(number, 4))

    with path.open("rb") as file:
        size = copied_lmdb(file, tmp_path / "copy", commit)
    assert size == (4 * 4096 if whole else None)
    if whole:
        assert (tmp_path / "copy").read_bytes() == beginning + b"a" * 4096 + b"b" * 4096


@pytest.mark.parametrize(
    "names",
    [
        ("ckpt-5.index", "ckpt-5.data-00000-of-00001"),
        ("model.safetensors.index.json", "model-00001-of-00002.safetensors"),
        ("corpus.idx", "corpus.bin"),
        ("index.json", "vectors.npy"),
        ("shelf.dir", "shelf.dat"),
        ("data.zarr/x/zarr.json", "data.zarr/x/c/0/0"),
        ("bdb/__db.001", "bdb/log.0000000001"),
        ("env.mdb.wal", "env.mdb"),
    ],
)
def test_files_that_belong_together_keep_their_versions_of_one_checkpoint(
    here: Desk, tmp_path: Path, names: tuple[str, str]
) -> None:
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"\0one")
    (folder / "other").write_text("one")
    if "zarr.json" in names[0]:
        (folder / "data.zarr" / "zarr.json").write_text("{}")
    sync.step()
    (folder / names[0]).write_bytes(b"\0two")
    with (folder / names[1]).open("wb", buffering=0) as torn:
        torn.write(b"\0half of")
        (folder / "other").write_text("two")
        sync.step()
        sync.step()
        found = stored(here, attempt, tmp_path / "out")
        assert [found[name] for name in names] == [b"\0one", b"\0one"]
        assert found["other"] == b"two"
        assert said(attempt, "keep their last stored version") > 0
        torn.write(b" it")
    # The other one was saved after it before, so it may be waited for.
    for _ in range(1 + SAVE_STEPS):
        sync.step()
    found = stored(here, attempt, tmp_path / "out")
    assert [found[name] for name in names] == [b"\0two", b"\0half of it"]


def test_a_group_of_which_one_file_vanished_keeps_it_too(here: Desk, tmp_path: Path) -> None:
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    (folder / "run.duckdb").write_bytes(b"\0one")
    (folder / "run.duckdb.wal").write_bytes(b"\0log")
    sync.step()
    (folder / "run.duckdb.wal").unlink()
    with (folder / "run.duckdb").open("wb", buffering=0) as torn:
        torn.write(b"\0half")
        sync.step()
        (folder / "other").write_text("two")
        sync.step()
        found = stored(here, attempt, tmp_path / "out")
        pair = {"run.duckdb": b"\0one", "run.duckdb.wal": b"\0log"}
        assert found == {**pair, "other": b"two"}
    sync.step()
    found = stored(here, attempt, tmp_path / "out")
    assert found == {"run.duckdb": b"\0half", "other": b"two"}


def test_a_folder_that_is_replaced_as_a_whole_is_never_stored_from_two(
    here: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    copied, times = steady_copy, list[int]()

    def replace(*words: Any, **more: Any) -> Any:  # noqa: ANN401  passed on
        """Replace the folder between the copies of its two files."""
        found = copied(*words, **more)
        times.append(1)
        if len(times) % 2 and len(times) < 14:
            fill(str(len(times)))
        return found

    def fill(content: str) -> None:
        new, old = folder / "new", folder / "step"
        (new / "inner").mkdir(parents=True)
        for name in ("a", "inner/b"):
            (new / name).write_text(content)
        if old.exists():
            old.rename(attempt.folders.control / f"old{len(times)}")
        new.rename(old)

    fill("0")
    monkeypatch.setattr(snapshots, "steady_copy", replace)
    sync.step()
    sync.step()
    found = stored(here, attempt, tmp_path / "out")
    assert len({found["step/a"], found["step/inner/b"]}) == 1
    assert len(times) > 13
