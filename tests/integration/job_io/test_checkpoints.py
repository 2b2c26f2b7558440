"""The checkpoint sync, one step at a time, on a real queue and a real store."""

from __future__ import annotations

import json
import shutil
import threading
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.storage import StoreError, StoreUnreachable
from forge_worker.attempt import LiveAttempt, Stopped
from forge_worker.files import copies
from forge_worker.files.safe_files import opened
from forge_worker.job_io import checkpoints
from forge_worker.job_io.checkpoints import CheckpointSync
from forge_worker.job_io.logs import LogShipper
from support.waiting import eventually
from support.workers.attempts import Desk, content, desk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from forge_schema.model.attempt_records import CheckpointRecord, LogChunkRecord

LIMIT_MB = 10


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Desk]:
    with desk(database_url, tmp_path) as made:
        yield made


def sync_of(here: Desk, attempt: LiveAttempt) -> CheckpointSync:
    return CheckpointSync(attempt, here.store, here.gateway, LIMIT_MB)


def fill(attempt: LiveAttempt, **files: str) -> None:
    """Write files into the checkpoint folder as a careful job does: elsewhere, then renamed."""
    for name, text in files.items():
        new = attempt.folders.control / name
        new.write_text(text)
        new.rename(attempt.folders.checkpoint / name)


def given(here: Desk) -> list[str]:
    """Return the files, not the manifests, that travelled since the last call."""
    files = [key for key in here.store.given if "/checkpoints/files/" in key]
    here.store.given.clear()
    return files


def forge(here: Desk, attempt: LiveAttempt, *rows: dict[str, Any]) -> None:
    """Replace the newest manifest by one of these entries."""
    row = here.database.row("latest_checkpoint", job_id=attempt.fence.job_id)
    assert row is not None
    here.store.put(row["key"], json.dumps({"version": 1, "files": list(rows)}).encode())


def test_first_attempt_looks_for_no_checkpoint_and_begins_with_an_empty_folder(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = here.attempt()
    # An installation may have left something there.
    fill(attempt, stray="x")
    monkeypatch.setattr(here.gateway, "restorable", None)
    sync_of(here, attempt).restore()
    assert content(attempt) == {}


def test_files_that_did_not_change_do_not_travel_again(here: Desk) -> None:
    first = here.attempt()
    sync = sync_of(here, first)
    fill(first, model="m1", optimizer="o1")
    sync.step()
    assert len(given(here)) == 2
    fill(first, model="m2")
    sync.step()
    assert len(given(here)) == 1
    sync.step()
    assert here.store.given == []

    second = here.again(first)
    later = sync_of(here, second)
    later.restore()
    assert content(second) == {"model": "m2", "optimizer": "o1"}
    later.step()
    assert here.store.given == []
    fill(second, model="m3")
    later.step()
    assert len(given(here)) == 1
    third = here.again(second)
    sync_of(here, third).restore()
    assert content(third) == {"model": "m3", "optimizer": "o1"}


def test_file_that_was_removed_is_not_restored(here: Desk) -> None:
    first = here.attempt()
    sync = sync_of(here, first)
    fill(first, old="x", kept="y")
    sync.step()
    (first.folders.checkpoint / "old").unlink()
    sync.step()
    second = here.again(first)
    sync_of(here, second).restore()
    assert content(second) == {"kept": "y"}


def test_checkpoint_without_its_row_is_never_restored(here: Desk) -> None:
    first = here.attempt()
    sync = sync_of(here, first)
    fill(first, model="whole")
    sync.step()
    fill(first, model="half", optimizer="other half")
    put = here.store.put

    def broken(key: str, data: bytes, **words: Any) -> bool:  # noqa: ANN401  passed on
        if len([k for k in here.store.given if "/files/" in k]) >= 2:
            raise StoreUnreachable("gone")
        return put(key, data, **words)

    here.store.put = broken  # type: ignore[method-assign]  # the store breaks half-way
    with pytest.raises(StoreError):
        sync.step()
    second = here.again(first)
    sync_of(here, second).restore()
    assert content(second) == {"model": "whole"}


def test_row_whose_answer_was_lost_goes_on_describing_its_object(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = here.attempt()
    add = here.gateway.record

    def lost(fence: Any, row: CheckpointRecord) -> bool:  # noqa: ANN401  passed on
        add(fence, row)
        raise DatabaseUnreachable("it committed, and nobody heard")

    monkeypatch.setattr(here.gateway, "record", lost)
    sync = sync_of(here, first)
    fill(first, model="one")
    with pytest.raises(DatabaseUnreachable):
        sync.step()
    monkeypatch.setattr(here.gateway, "record", add)
    fill(first, model="longer", optimizer="new")
    sync.step()
    with here.database.connection() as connection:
        rows = connection.execute("SELECT * FROM checkpoint ORDER BY number").fetchall()
    assert [row["files"] for row in rows] == [1, 2]
    for row in rows:
        files = json.loads(here.store.get(row["key"]))["files"]
        assert (len(files), sum(file["size"] for file in files)) == (row["files"], row["bytes"])


def test_chunk_whose_answer_was_lost_keeps_its_length(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = here.attempt()
    add = here.gateway.record

    def lost(fence: Any, chunk: LogChunkRecord) -> bool:  # noqa: ANN401  passed on
        add(fence, chunk)
        raise DatabaseUnreachable("it committed, and nobody heard")

    shipper = LogShipper(attempt, here.store, here.gateway, period_s=1)
    attempt.note("one")
    monkeypatch.setattr(here.gateway, "record", lost)
    with pytest.raises(DatabaseUnreachable):
        shipper.step()
    monkeypatch.setattr(here.gateway, "record", add)
    attempt.note("two")
    shipper.step()
    with here.database.connection() as connection:
        rows = connection.execute("SELECT start, bytes FROM log_chunk ORDER BY number").fetchall()
    length = len("forge: one\n")
    assert [(row["start"], row["bytes"]) for row in rows] == [(0, length), (length, length)]


def test_lost_lease_stores_no_row_and_stops_the_job(here: Desk) -> None:
    first = here.attempt()
    sync = sync_of(here, first)
    fill(first, model="x")
    here.gateway.queue.release(first.fence)
    sync.step()
    assert first.lost
    assert here.gateway.latest_checkpoint(first.fence.job_id) is None


def test_restore_ends_when_the_attempt_must_stop(here: Desk) -> None:
    first = here.attempt()
    fill(first, model="x")
    sync_of(here, first).step()
    second = here.again(first)
    second.lose()
    with pytest.raises(Stopped):
        sync_of(here, second).restore()
    assert content(second) == {}


def passed_over(here: Desk, first: LiveAttempt, why: str) -> LiveAttempt:
    """Restore in another attempt, which must find no intact checkpoint and say so."""
    following = here.again(first)
    sync_of(here, following).restore()
    assert content(following) == {}
    said = following.folders.log.read_text(errors="replace")
    assert "1.0 was skipped" in said, why
    assert "starts from the beginning" in said, why
    return following


def test_manifest_that_leads_elsewhere_is_passed_over(here: Desk) -> None:
    attempt = here.attempt()
    fill(attempt, model="x")
    sync_of(here, attempt).step()
    row = here.database.row("latest_checkpoint", job_id=attempt.fence.job_id)
    assert row is not None
    (entry,) = json.loads(here.store.get(row["key"]))["files"]
    evil = ["/etc/cron.d/x", "../x", "a/../../x", "", ".", "nul\0", "a/..", 7, None, ["x"]]
    for path in evil:
        forge(here, attempt, entry, {**entry, "path": path})
        attempt = passed_over(here, attempt, repr(path))
    for key in ["bundles/x", "jobs/10000/1-1/logs/00000000.zst", "../x", 7]:
        forge(here, attempt, {**entry, "key": key})
        attempt = passed_over(here, attempt, repr(key))
    for data in [b"", b"[]", b"{}", b'{"files": 1}', b"[" * 5000, b"\xff"]:
        here.store.put(row["key"], data)
        attempt = passed_over(here, attempt, repr(data))


def test_folder_that_never_stands_still_is_stored_when_it_does(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "PAUSE_S", 0)
    attempt = here.attempt()
    sync = sync_of(here, attempt)
    target = attempt.folders.checkpoint / "busy"
    ended, begun = threading.Event(), threading.Event()

    def write() -> None:
        turn = 0
        while not ended.is_set():
            turn += 1
            target.write_text(f"{turn} " * 1000 + f"{turn}")
            begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    begun.wait()
    for _ in range(20):
        sync.step()
    ended.set()
    writer.join()
    sync.step()
    following = here.again(attempt)
    sync_of(here, following).restore()
    assert content(following)["busy"] == target.read_text()


def test_folder_of_a_step_that_was_half_saved_is_not_restored(here: Desk) -> None:
    attempt = here.attempt()
    sync = sync_of(here, attempt)
    names = ("model.safetensors", "training_args.bin", "trainer_state.json")
    for step, written in ((5, names), (10, names[:2])):
        folder = attempt.folders.checkpoint / f"checkpoint-{step}"
        folder.mkdir()
        for name in written:
            (folder / name).touch()
        sync.step()
    sync.program.over = True
    sync.step()
    following = here.again(attempt)
    sync_of(here, following).restore()
    assert content(following).keys() == {f"checkpoint-5/{name}" for name in names}


def test_file_that_cannot_be_read_keeps_the_checkpoint_out_and_is_named(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(root: Path, relative: str) -> AbstractContextManager[BinaryIO]:
        if relative == "closed":
            raise PermissionError(13, "Permission denied")
        return opened(root, relative)

    # Root, who may run this test, reads what is closed to everybody else.
    monkeypatch.setattr(copies, "opened", closed)
    attempt = here.attempt()
    fill(attempt, open="x", closed="y")
    sync = sync_of(here, attempt)
    sync.step()
    sync.step()
    assert here.gateway.latest_checkpoint(attempt.fence.job_id) is None
    assert attempt.folders.log.read_text().count("'closed' cannot be read") == 1


def stored(here: Desk, attempt: LiveAttempt) -> dict[str, str]:
    """Return the files of the newest checkpoint; nothing where there is none."""
    row = here.gateway.latest_checkpoint(attempt.fence.job_id)
    files = json.loads(here.store.get(row["key"]))["files"] if row else []
    return {file["path"]: here.store.get(file["key"]).decode() for file in files}


def test_a_file_keeps_its_copy_when_a_larger_one_comes_meanwhile(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = here.attempt()
    sync = sync_of(here, attempt)
    fill(attempt, a="aaaa", b="bbbb")
    still = sync._snapshots.still

    def meanwhile(*words: Any) -> bool:  # noqa: ANN401  passed on
        fill(attempt, larger="larger")
        return still(*words)

    monkeypatch.setattr(checkpoints, "PAUSE_S", 0.0)
    monkeypatch.setattr(sync._snapshots, "still", meanwhile)
    sync.step()
    assert stored(here, attempt) == {"a": "aaaa", "b": "bbbb", "larger": "larger"}


def test_what_a_file_names_is_stored_with_it_though_the_folder_never_stands_still(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = here.attempt()
    sync = sync_of(here, attempt)
    fill(attempt, part0="0", latest="part0")
    taken, times = sync._snapshots.take, list[int]()

    def writes(*words: Any) -> bool:  # noqa: ANN401  passed on
        times.append(1)
        part = f"part{len(times)}"
        fill(attempt, **{part: "x"})
        fill(attempt, latest=part)
        return taken(*words)

    monkeypatch.setattr(checkpoints, "PAUSE_S", 0.0)
    monkeypatch.setattr(sync._snapshots, "take", writes)
    sync.step()
    found = stored(here, attempt)
    assert found["latest"] in found


def said(attempt: LiveAttempt, words: str) -> int:
    return attempt.folders.log.read_text().count(words)


def test_model_rewritten_in_place_beside_a_growing_log_is_never_stored_torn(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "PAUSE_S", 0)
    attempt = here.attempt()
    folder, sync = attempt.folders.checkpoint, sync_of(here, attempt)
    fill(attempt, config="c")
    with (folder / "train.log").open("a") as log, (folder / "model").open("w") as model:
        log.write("one\n")
        log.flush()
        model.write("\0first half")
        model.flush()
        sync.step()
        assert stored(here, attempt) == {}
        log.write("two\nthr")
        log.flush()
        sync.step()
        # A file that was never stored whole is left out, and named.
        assert stored(here, attempt) == {"config": "c", "train.log": "one\ntwo\n"}
        assert said(attempt, "are stored without them: 'model', being written") == 1
        model.write(", second half")
        model.close()
        log.write("ee\n")
        log.flush()
        sync.step()
        whole = {"config": "c", "model": "\0first half, second half"}
        assert stored(here, attempt) == {**whole, "train.log": "one\ntwo\nthree\n"}
        with (folder / "model").open("w") as again_open:
            again_open.write("\0another half" * 3)
            again_open.flush()
            log.write("four\n")
            log.flush()
            for _ in range(3):
                sync.step()
            assert stored(here, attempt) == {**whole, "train.log": "one\ntwo\nthree\nfour\n"}
    assert said(attempt, "'model'") == 1
    sync.step()
    following = here.again(attempt)
    sync_of(here, following).restore()
    assert content(following)["model"] == "\0another half" * 3


def test_log_that_only_grows_makes_no_checkpoint_of_what_is_stored(here: Desk) -> None:
    attempt = here.attempt()
    sync = sync_of(here, attempt)
    fill(attempt, model="m")
    sync.step()
    (attempt.folders.checkpoint / "model").touch()
    here.store.given.clear()
    sync.step()
    assert here.store.given == []


def test_why_nothing_is_stored_is_said_once_in_the_jobs_log(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = here.attempt()
    sync = sync_of(here, attempt)
    fill(attempt, model="m")

    def away(*_: object, **__: object) -> bool:
        raise StoreUnreachable("gone fishing", hint="wait")

    with monkeypatch.context() as broken:
        broken.setattr(here.store, "put", away)
        for turn in range(4):
            with pytest.raises(StoreUnreachable):
                sync.step()
            assert said(attempt, "could not be stored: gone fishing (wait)") == (turn > 0)
    sync.step()
    assert said(attempt, "checkpoints are being stored again") == 1
    assert stored(here, attempt) == {"model": "m"}


def test_a_checkpoint_that_comes_too_late_leaves_no_folder_behind(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "LAST_S", 0.2)
    attempt = here.attempt()
    sync = sync_of(here, attempt)
    fill(attempt, model="m")
    asked, answered = threading.Event(), threading.Event()

    def hangs(*_: object, **__: object) -> bool:
        asked.set()
        answered.wait()
        raise StoreUnreachable("too late")

    monkeypatch.setattr(here.store, "put", hangs)
    sync.start()
    sync.wake()
    assert asked.wait(60)
    sync.program.over = True
    sync.finish()
    shutil.rmtree(attempt.folders.root)
    answered.set()
    ours = {"last checkpoint", sync.name}
    eventually(lambda: all(one.name not in ours for one in threading.enumerate()))
    assert not attempt.folders.root.exists()


def test_last_checkpoint_of_a_success_neither_fails_nor_holds_it_up(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "LAST_S", 0.2)
    attempt = here.attempt()
    sync = sync_of(here, attempt)
    fill(attempt, model="m")
    sync.program.over = True
    answered = threading.Event()

    def hangs(*_: object, **__: object) -> bool:
        answered.wait()
        raise StoreUnreachable("too late")

    monkeypatch.setattr(here.store, "put", hangs)
    sync.finish()
    assert said(attempt, "the last checkpoint was not stored: it took too long") == 1
    answered.set()
    # It leaves by itself, and uses the same folder.
    eventually(lambda: all(one.name != "last checkpoint" for one in threading.enumerate()))
    monkeypatch.setattr(checkpoints, "LAST_S", 60.0)

    def away(*_: object, **__: object) -> bool:
        raise StoreUnreachable("gone fishing")

    monkeypatch.setattr(here.store, "put", away)
    other = sync_of(here, attempt)
    other.program.over = True
    other.finish()
    assert said(attempt, "the checkpoint could not be stored: gone fishing") == 1
