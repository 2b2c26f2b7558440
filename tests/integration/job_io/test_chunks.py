"""Checkpoints of files that are larger than a chunk, here of 1000 bytes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.model.lease import Grant
from forge_schema.storage import StoreUnreachable
from forge_schema.storage.manifest import sha256
from forge_worker.attempt import LiveAttempt
from forge_worker.attempt_folders import Folders
from forge_worker.files.safe_files import weight
from forge_worker.job_io.checkpoints import CheckpointSync
from pydantic import TypeAdapter
from support.workers.attempts import Desk, desk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT_MB = 100
CHUNK = 1000
TESTS = Path(__file__).parents[2]
GRANT = TypeAdapter(Grant)
# Dies once the third chunk is stored, as if the machine's power failed.
DIES = """
import os, signal, sys
from pathlib import Path
from forge_schema.model.lease import Grant
from pydantic import TypeAdapter
from forge_worker.job_io.checkpoints import CheckpointSync
from forge_worker import transfers
from forge_worker.transfers import sending
from support.workers.attempts import desk

sending.TRANSFERS, sending.REQUESTS = transfers.Transfers(1), transfers.Transfers(1)
with desk(sys.argv[1], Path(sys.argv[2])) as here:
    attempt = here.attempt()
    (attempt.folders.checkpoint / "model").write_bytes(Path(sys.argv[3]).read_bytes())
    put = here.store.put_part

    def dies(key, *part):
        if len(here.store.given) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return put(key, *part)

    here.store.put_part = dies
    print(TypeAdapter(Grant).dump_json(attempt.grant).decode(), flush=True)
    CheckpointSync(attempt, here.store, here.gateway, 100, 1000).step()
"""


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Desk]:
    with desk(database_url, tmp_path) as made:
        yield made


def sync_of(here: Desk, attempt: LiveAttempt) -> CheckpointSync:
    return CheckpointSync(attempt, here.store, here.gateway, LIMIT_MB, CHUNK)


def restored(here: Desk, attempt: LiveAttempt) -> dict[str, bytes]:
    following = here.again(attempt)
    sync_of(here, following).restore()
    return {path.name: path.read_bytes() for path in following.folders.checkpoint.iterdir()}


def chunks(here: Desk) -> list[str]:
    """Return the chunks and files that were sent since the last call."""
    given = [key for key in here.store.given if "/files/" in key]
    here.store.given.clear()
    return given


def newest(here: Desk, attempt: LiveAttempt) -> dict[str, Any]:
    """Return the newest checkpoint's manifest."""
    row = here.gateway.restorable(attempt.fence.job_id)[0]
    told: dict[str, Any] = json.loads(here.store.get(row["key"]))
    return told


def test_only_changed_chunks_are_sent_and_the_whole_is_restored(here: Desk) -> None:
    attempt = here.attempt()
    model, content = attempt.folders.checkpoint / "model", bytearray(os.urandom(10 * CHUNK + 1))
    model.write_bytes(content)
    (attempt.folders.checkpoint / "small").write_bytes(b"small")
    sync = sync_of(here, attempt)
    sync.step()
    assert len(chunks(here)) == 12
    content[5 * CHUNK] ^= 1
    model.write_bytes(content)
    sync.step()
    assert len(chunks(here)) == 1
    told = newest(here, attempt)
    assert (told["version"], told["files"][0]["chunk_bytes"]) == (2, CHUNK)
    assert restored(here, attempt) == {"model": bytes(content), "small": b"small"}


def test_a_small_checkpoint_has_no_chunks(here: Desk) -> None:
    attempt = here.attempt()
    (attempt.folders.checkpoint / "small").write_bytes(b"x" * CHUNK)
    sync_of(here, attempt).step()
    told = newest(here, attempt)
    assert told["version"] == 1
    assert sorted(told["files"][0]) == ["key", "mtime_ns", "path", "sha256", "size"]


def test_holes_are_sent_once_and_stay_holes(here: Desk) -> None:
    attempt = here.attempt()
    sync = CheckpointSync(attempt, here.store, here.gateway, LIMIT_MB, 1 << 20)
    with (attempt.folders.checkpoint / "sparse").open("wb") as file:
        file.write(b"begun")
        file.truncate(50 << 20)
    sync.step()
    assert len(chunks(here)) == 2
    following = here.again(attempt)
    sync_of(here, following).restore()
    found = following.folders.checkpoint / "sparse"
    assert sha256(found) == sha256(attempt.folders.checkpoint / "sparse")
    assert weight(following.folders.checkpoint) < 2 << 20


def _alter(here: Desk, key: str) -> None:
    data = here.store.get(key)
    here.store.put(key, data[:-1] + bytes([data[-1] ^ 2]))


def _shorten(here: Desk, key: str) -> None:
    here.store.put(key, here.store.get(key)[:-1])


def _lose(here: Desk, key: str) -> None:
    here.store.delete(key)


@pytest.mark.parametrize("harm", [_alter, _shorten, _lose])
def test_one_damaged_chunk_makes_the_checkpoint_before_the_current_one(
    here: Desk, harm: Callable[[Desk, str], None]
) -> None:
    attempt = here.attempt()
    model, content = attempt.folders.checkpoint / "model", bytearray(os.urandom(9 * CHUNK))
    sync = sync_of(here, attempt)
    model.write_bytes(content)
    sync.step()
    before = bytes(content)
    chunks(here)
    content[-1] ^= 1
    model.write_bytes(content)
    sync.step()
    (fresh,) = chunks(here)
    harm(here, fresh)
    assert restored(here, attempt) == {"model": before}


def test_an_upload_goes_on_where_the_agent_was_killed(
    here: Desk, database_url: str, tmp_path: Path
) -> None:
    content = os.urandom(10 * CHUNK)
    (tmp_path / "content").write_bytes(content)
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-c", DIES, database_url, str(tmp_path), str(tmp_path / "content")],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        check=False,
    )
    assert ended.returncode == -9, ended.stderr
    grant = GRANT.validate_json(ended.stdout)
    adopted = LiveAttempt(grant, Folders(tmp_path / str(grant.fence.token)))
    sync = sync_of(here, adopted)
    sync.recall()
    sync.step()
    assert len(chunks(here)) == 7
    sync.step()
    assert restored(here, adopted) == {"model": content}


def test_an_upload_goes_on_where_the_store_went_away(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = here.attempt()
    content = os.urandom(40 * CHUNK)
    (attempt.folders.checkpoint / "model").write_bytes(content)
    sync, put, calls = sync_of(here, attempt), here.store.put_part, count()

    def breaks(key: str, *part: Any) -> bool:  # noqa: ANN401  passed on
        if next(calls) >= 20:
            raise StoreUnreachable("the store went away")
        return put(key, *part)

    monkeypatch.setattr(here.store, "put_part", breaks)
    with pytest.raises(StoreUnreachable):
        sync.step()
    before = chunks(here)
    monkeypatch.setattr(here.store, "put_part", put)
    sync.step()
    after = chunks(here)
    assert len(before) + len(after) == 40
    assert not set(before) & set(after)
    assert restored(here, attempt) == {"model": content}


def test_chunks_that_the_store_cannot_copy_are_read(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = here.attempt()
    content = os.urandom(3 * CHUNK + 1)
    (attempt.folders.checkpoint / "model").write_bytes(content)

    def other_file_system(*_: object) -> int:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", other_file_system)
    sync_of(here, attempt).step()
    assert len(chunks(here)) == 4
    assert restored(here, attempt) == {"model": content}


def test_a_lost_lease_ends_an_upload_that_stays_invisible(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = here.attempt()
    (attempt.folders.checkpoint / "model").write_bytes(os.urandom(200 * CHUNK))
    put = here.store.put_part

    def loses(key: str, *part: Any) -> bool:  # noqa: ANN401  passed on
        attempt.lose()
        return put(key, *part)

    monkeypatch.setattr(here.store, "put_part", loses)
    sync_of(here, attempt).step()
    assert 0 < len(chunks(here)) < 100
    assert here.gateway.restorable(attempt.fence.job_id) == []


def test_thinning_keeps_every_chunk_that_a_checkpoint_has(here: Desk) -> None:
    attempt = here.attempt()
    attempt.grant.spec["keep_checkpoints"] = 1
    model, content = attempt.folders.checkpoint / "model", bytearray(os.urandom(5 * CHUNK))
    sync = sync_of(here, attempt)
    for number in range(4):
        content[number * CHUNK] ^= 1
        model.write_bytes(content)
        sync.step()
        sync.thinner.step()
    kept = {row["key"] for row in here.gateway.restorable(attempt.fence.job_id)}
    needed = set()
    for key in kept:
        for file in json.loads(here.store.get(key))["files"]:
            needed |= set(file["chunks"])
    assert len(kept) == 2
    assert {one.key for one in here.store.list("jobs/")} == kept | needed
    assert len(needed) == 8
    assert restored(here, attempt) == {"model": bytes(content)}


def test_a_file_that_is_replaced_while_it_is_sent_is_stored_as_it_was(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = here.attempt()
    model, content = attempt.folders.checkpoint / "model", os.urandom(30 * CHUNK)
    model.write_bytes(content)
    put = here.store.put_part

    def replaces(key: str, *part: Any) -> bool:  # noqa: ANN401  passed on
        new = attempt.folders.work / key.replace("/", "-")
        new.write_bytes(b"next")
        new.replace(model)
        # It is not copied.
        assert not [path for path in attempt.folders.staging.rglob("*") if path.is_file()]
        return put(key, *part)

    monkeypatch.setattr(here.store, "put_part", replaces)
    sync_of(here, attempt).step()
    monkeypatch.setattr(here.store, "put_part", put)
    assert restored(here, attempt) == {"model": content}


def test_a_file_that_is_rewritten_while_it_is_sent_is_copied_first(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = here.attempt()
    model = attempt.folders.checkpoint / "model"
    model.write_bytes(b"a" * 30 * CHUNK)
    put, times = here.store.put_part, list[int]()

    def rewrites(key: str, *part: Any) -> bool:  # noqa: ANN401  passed on
        if "/files/" in key and len(times) < 2:
            times.append(1)
            model.write_bytes(bytes([len(times)]) * 30 * CHUNK)
        return put(key, *part)

    monkeypatch.setattr(here.store, "put_part", rewrites)
    sync = sync_of(here, attempt)
    sync.step()
    # The first try was given up; the second sent a copy, whatever happened to the file.
    assert len(times) == 2
    assert restored(here, attempt) == {"model": bytes([1]) * 30 * CHUNK}
    assert not attempt.folders.log.read_text()


def test_storing_takes_hardly_any_disk(here: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most a twentieth of the checkpoint, whatever the size of its files."""
    attempt = here.attempt()
    folder, staging = attempt.folders.checkpoint, attempt.folders.staging
    sizes = {"optimizer": 33 << 20, "model": 20 << 20, "extra": 3 << 20, "state.json": 1000}
    for name, size in sizes.items():
        (folder / name).write_bytes(os.urandom(size))
    put, peak = here.store.put_part, [0]

    def measures(key: str, *part: Any) -> bool:  # noqa: ANN401  passed on
        peak.append(weight(staging))
        return put(key, *part)

    monkeypatch.setattr(here.store, "put_part", measures)
    CheckpointSync(attempt, here.store, here.gateway, LIMIT_MB).step()
    assert newest(here, attempt)["files"]
    assert max(peak) <= sum(sizes.values()) / 20


def test_a_copy_is_made_only_within_the_jobs_share_of_the_disk(here: Desk) -> None:
    attempt = here.attempt()
    folder, staging = attempt.folders.checkpoint, attempt.folders.staging
    (folder / "state").write_bytes(b"x")
    with (folder / "model").open("wb") as model:
        model.write(os.urandom(20 << 20))
        model.flush()
        peak = []
        for limit_mb in (21, LIMIT_MB):
            sync = CheckpointSync(attempt, here.store, here.gateway, limit_mb)
            taken = sync._snapshots.take

            def take(*words: Any) -> bool:  # noqa: ANN401  passed on
                done = taken(*words)  # noqa: B023  called within its turn
                peak.append(weight(staging))
                return done

            sync._snapshots.take = take  # type: ignore[method-assign, assignment]
            sync.step()
    # Half of a model may be there, so it must be copied to see.
    assert max(peak[: len(peak) // 2]) < 1 << 20
    assert max(peak[len(peak) // 2 :]) > 20 << 20


def test_a_large_log_that_grows_is_stored_up_to_where_it_was_copied(here: Desk) -> None:
    attempt = here.attempt()
    content = os.urandom(5 * CHUNK + 10)
    with (attempt.folders.checkpoint / "log").open("wb") as log:
        log.write(content)
        log.flush()
        os.utime(log.fileno(), (1, 1))
        sync = sync_of(here, attempt)
        sync.step()
        chunks(here)
        log.write(b"more" * 500)
        log.flush()
        sync.step()
        assert len(chunks(here)) == 3
        assert restored(here, attempt) == {"log": content + b"more" * 500}
