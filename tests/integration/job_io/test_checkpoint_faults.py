"""Failures around checkpoints: a partial store, an interrupted restore, a damaged object."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from threading import Event
from time import monotonic, time
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.model.lease import End, Fence
from forge_schema.model.spec import CheckpointSource, JobSpec
from forge_schema.model.states import Reason
from forge_schema.storage import StoreUnreachable
from forge_schema.storage.manifest import CheckpointUnsound
from forge_worker.files.copies import steady_copy
from forge_worker.job_io import checkpoints, occasions, snapshots
from forge_worker.job_io.checkpoints import CheckpointSync
from forge_worker.job_io.occasions import CheckpointRequest
from support.workers.attempts import Desk, desk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forge_worker.attempt import LiveAttempt

LIMIT_MB = 10
TESTS = Path(__file__).parents[2]
# Stores one checkpoint; then dies in the middle of the next, once its manifest is stored too.
DIES = """
import os, signal, sys
from pathlib import Path
from forge_worker.job_io.checkpoints import CheckpointSync
from support.workers.attempts import desk

with desk(sys.argv[1], Path(sys.argv[2])) as here:
    attempt = here.attempt()
    sync = CheckpointSync(attempt, here.store, here.gateway, 10)
    (attempt.folders.checkpoint / "model").write_text("whole")
    sync.step()
    (attempt.folders.checkpoint / "model").write_text("never seen")
    here.gateway.record = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    sync.step()
"""


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Desk]:
    with desk(database_url, tmp_path) as made:
        yield made


def sync_of(here: Desk, attempt: LiveAttempt) -> CheckpointSync:
    return CheckpointSync(attempt, here.store, here.gateway, LIMIT_MB)


def store(here: Desk, attempt: LiveAttempt, *contents: str) -> CheckpointSync:
    """Store a checkpoint of one file for each content."""
    sync = sync_of(here, attempt)
    for content in contents:
        (attempt.folders.checkpoint / "model").write_text(content)
        sync.step()
    return sync


def model(attempt: LiveAttempt) -> str:
    (only,) = attempt.folders.checkpoint.iterdir()
    assert only.name == "model"
    return only.read_text()


def rows(here: Desk, job_id: int) -> list[dict[str, Any]]:
    return here.gateway.restorable(job_id)


def test_checkpoint_of_a_worker_killed_before_its_row_is_never_restored(
    here: Desk, database_url: str, tmp_path: Path
) -> None:
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-c", DIES, database_url, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert ended.returncode == -9
    manifests = [one for one in here.store.list("jobs/") if one.key.endswith(".json")]
    assert len(manifests) == 2
    with here.database.connection() as connection:
        lease = connection.execute("SELECT job_id, token, nonce FROM lease").fetchone()
    assert lease is not None
    fence = Fence(**lease)
    here.gateway.finish([End(fence, Reason.WORKER_LOST)])
    following = here.attempt()
    assert following.fence.job_id == fence.job_id
    sync = sync_of(here, following)
    sync.restore()
    assert model(following) == "whole"
    # What the dead attempt left goes with the next attempt's first thinning.
    (following.folders.checkpoint / "model").write_text("more")
    sync.step()
    sync.thinner.step()
    kept = {row["key"] for row in rows(here, fence.job_id)}
    left = {one.key for one in here.store.list("jobs/") if one.key.endswith(".json")}
    assert left == kept
    assert len([one for one in here.store.list("jobs/") if "/files/" in one.key]) == 2


def test_restore_that_was_cut_off_fetches_only_what_is_missing(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = here.attempt()
    folder = first.folders.checkpoint
    for name in ("a", "b", "c"):
        (folder / name).write_text(name)
    sync_of(here, first).step()
    second = here.again(first)
    stream, fetched = here.store.stream, list[str]()
    away = [True]

    def breaks(key: str) -> Iterator[bytes]:
        if away[0] and len(fetched) == 2:
            raise StoreUnreachable("the store went away")
        fetched.append(key)
        yield from stream(key)

    monkeypatch.setattr(here.store, "stream", breaks)
    sync = sync_of(here, second)
    (second.folders.checkpoint / "other").write_text("of an earlier try")
    with pytest.raises(StoreUnreachable):
        sync.restore()
    assert "was skipped" not in second.folders.log.read_text()
    away[0] = False
    sync.restore()
    found = {path.name: path.read_text() for path in second.folders.checkpoint.iterdir()}
    assert found == {"a": "a", "b": "b", "c": "c"}
    assert len(fetched) == len(set(fetched)) == 3


def _alter(here: Desk, key: str) -> None:
    here.store.put(key, b"altered")


def _lose(here: Desk, key: str) -> None:
    here.store.delete(key)


@pytest.mark.parametrize("harm", [_alter, _lose])
def test_damaged_checkpoint_is_passed_over_for_the_next_older_one(
    here: Desk, harm: Callable[[Desk, str], None]
) -> None:
    first = here.attempt()
    store(here, first, "one", "two", "three")
    found = rows(here, first.fence.job_id)
    assert [row["number"] for row in found] == [2, 1, 0]
    harm(here, found[0]["key"])
    files = sorted(one.key for one in here.store.list("jobs/") if "/files/000001-" in one.key)
    harm(here, files[0])
    second = here.again(first)
    sync = sync_of(here, second)
    sync.restore()
    assert model(second) == "one"
    said = second.folders.log.read_text()
    assert "checkpoint 1.2 was skipped" in said
    assert "checkpoint 1.1 was skipped" in said
    # Its checkpoint is the newest from now on, whatever damaged ones lie below it.
    (second.folders.checkpoint / "model").write_text("four")
    sync.step()
    third = here.again(second)
    sync_of(here, third).restore()
    assert model(third) == "four"
    assert third.folders.log.read_text() == ""


def test_job_never_begins_anew_where_it_was_to_start_from_what_is_damaged(here: Desk) -> None:
    source = here.attempt()
    store(here, source, "one")
    asked = CheckpointSource(job_id=source.fence.job_id)
    spec = JobSpec(name="j", owner="ann", command=["true"], from_checkpoint=asked)
    here.gateway.queue.submit([spec])
    child = here.attempt()
    sync = sync_of(here, child)
    sync.restore()
    assert model(child) == "one"
    sync.step()
    assert len(rows(here, child.fence.job_id)) == 1
    # The child's own checkpoints consist of its own objects.
    (child.folders.checkpoint / "more").write_text("two")
    sync.step()
    own = rows(here, child.fence.job_id)[0]
    assert own["job_id"] == child.fence.job_id
    assert f"jobs/{source.fence.job_id}/" not in here.store.get(own["key"]).decode()

    here.gateway.queue.submit([spec])
    other = here.attempt()
    _alter(here, rows(here, other.fence.job_id)[0]["key"])
    with pytest.raises(CheckpointUnsound):
        sync_of(here, other).restore()


def test_the_folder_is_stored_at_once_when_the_job_asks(
    here: Desk, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    attempt = here.attempt()
    job_id, folder = attempt.fence.job_id, attempt.folders.checkpoint
    sync = sync_of(here, attempt)
    assert sync.period_s == 30
    call = CheckpointRequest(attempt, sync)
    add = here.gateway.record

    def slow(fence: Any, row: Any) -> bool:  # noqa: ANN401  passed on
        """Touch the file once more, with other content, while the first one is stored."""
        if row.number == 0:
            (folder / "model").write_text("two")
            attempt.folders.save.touch()
            call.step()
        return add(fence, row)

    monkeypatch.setattr(here.gateway, "record", slow)
    sync.start()
    call.start()
    try:
        (folder / "model").write_text("one")
        attempt.folders.save.touch()
        eventually(lambda: len(rows(here, job_id)) == 2)
    finally:
        call.end()
        sync.end()
    following = here.again(attempt)
    sync_of(here, following).restore()
    assert model(following) == "two"


def test_files_that_stand_still_are_not_even_read_again(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = here.attempt()
    folder = attempt.folders.checkpoint
    for name in ("big", "fresh"):
        (folder / name).write_text(name)
    os.utime(folder / "big", (1, 1))
    # However long this machine takes to begin.
    later = time() + 600
    os.utime(folder / "fresh", (later, later))
    sync = sync_of(here, attempt)
    sync.step()
    (folder / "new").write_text("new")
    read: list[str] = []
    copied = steady_copy

    def watched(root: Path, relative: str, *words: Any, **more: Any) -> Any:  # noqa: ANN401  passed on
        read.append(relative)
        return copied(root, relative, *words, **more)

    monkeypatch.setattr(snapshots, "steady_copy", watched)
    here.store.given.clear()
    sync.step()
    # A file just written may change again with the same time.
    assert sorted(read) == ["fresh", "new"]
    assert len([key for key in here.store.given if "/files/" in key]) == 1
    following = here.again(attempt)
    sync_of(here, following).restore()
    names = {path.name: path.read_text() for path in following.folders.checkpoint.iterdir()}
    assert names == {"big": "big", "fresh": "fresh", "new": "new"}


def test_a_last_checkpoint_whose_row_is_late_is_not_called_missing(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = here.attempt()
    sync = store(here, attempt, "first")
    (attempt.folders.checkpoint / "model").write_text("last")
    sync.program.over = True
    record, looked, over = here.gateway.record, Event(), sync._limit.over
    late_s = monotonic() + 2 * checkpoints.LAST_S
    monkeypatch.setattr(occasions, "ROW_S", 10 * checkpoints.LAST_S)

    def late(*args: Any) -> bool:  # noqa: ANN401  passed on
        monkeypatch.setattr(occasions, "monotonic", lambda: late_s)
        looked.clear()
        looked.wait(30)
        return record(*args)

    def look() -> bool:
        given_up = over()
        looked.set()
        return given_up

    monkeypatch.setattr(sync._limit, "over", look)
    monkeypatch.setattr(here.gateway, "record", late)
    sync.finish()
    assert not attempt.folders.log.exists() or "stored" not in attempt.folders.log.read_text()
    assert here.gateway.restorable(attempt.fence.job_id)[0]["number"] == 1
