"""Checkpoints of many small files, which are stored in packs: here of at most 20 files."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from forge_schema.compatibility import WITHOUT_PACKS
from forge_schema.model.worker import Machine
from forge_schema.storage import ObjectTooLarge, StoreUnreachable
from forge_worker.job_io.checkpoints import CheckpointSync
from forge_worker.queue.gateway import SqlGateway
from forge_worker.transfers import checkpoint_files
from support.workers.attempts import Desk, content, desk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forge_worker.attempt import LiveAttempt

LIMIT_MB = 10
COUNT, BYTES, IN_A_PACK = 100, 5000, 20


@pytest.fixture
def here(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(checkpoint_files, "PACK_BYTES", BYTES * IN_A_PACK)
    with desk(database_url, tmp_path) as made:
        yield made


def sync_of(here: Desk, attempt: LiveAttempt) -> CheckpointSync:
    return CheckpointSync(attempt, here.store, here.gateway, LIMIT_MB)


def fill(attempt: LiveAttempt, numbers: range = range(COUNT), of: str = "one") -> None:
    """Write files that differ, and one that is empty."""
    for number in numbers:
        path = attempt.folders.checkpoint / f"part-{number % 7}" / f"{number:03}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{of} {number}".ljust(BYTES))
    (attempt.folders.checkpoint / "empty").touch()


def given(here: Desk) -> list[str]:
    """Return what was sent beside manifests since the last call."""
    files = [key for key in here.store.given if "/files/" in key]
    here.store.given.clear()
    return files


def newest(here: Desk, attempt: LiveAttempt) -> dict[str, Any]:
    """Return the newest checkpoint's manifest."""
    row = here.gateway.restorable(attempt.fence.job_id)[0]
    told: dict[str, Any] = json.loads(here.store.get(row["key"]))
    return told


def kept(here: Desk, attempt: LiveAttempt) -> set[str]:
    found = here.store.list(f"jobs/{attempt.fence.job_id}/")
    return {one.key for one in found if "/files/" in one.key}


def test_small_files_travel_in_a_few_objects_and_only_when_their_content_is_new(here: Desk) -> None:
    first = here.attempt()
    sync = sync_of(here, first)
    fill(first)
    (first.folders.checkpoint / "twin").write_text("one 0".ljust(BYTES))
    sync.step()
    assert len(given(here)) == COUNT // IN_A_PACK + 1
    assert newest(here, first)["version"] == 3
    fill(first)
    sync.step()
    assert given(here) == []
    # A few alone are objects of their own.
    fill(first, range(10), of="two")
    sync.step()
    assert len(given(here)) == 10
    saved = content(first)

    second = here.again(first)
    later = sync_of(here, second)
    later.restore()
    assert content(second) == saved
    later.step()
    assert here.store.given == []
    # In the order in which they were saved before: otherwise, others would seem to follow.
    fill(second, range(15, COUNT), of="three")
    fill(second, range(10), of="three")
    later.step()
    # Little of the old packs is needed: five files of those are in the new ones too.
    assert 4 <= len(given(here)) <= 6
    saved = content(second)
    third = here.again(second)
    sync_of(here, third).restore()
    assert content(third) == saved


def test_a_pack_goes_once_less_than_half_of_it_is_needed(here: Desk) -> None:
    attempt = here.attempt()
    attempt.grant.spec["keep_checkpoints"] = 1
    sync = sync_of(here, attempt)
    fill(attempt)
    sync.step()
    old = set(given(here))
    for turn in range(4):
        # Two of three files, wherever they are.
        fill(attempt, range(0, COUNT, 3), of=f"{turn}")
        fill(attempt, range(1, COUNT, 3), of=f"{turn}")
        sync.step()
        here.gateway.thin_checkpoints(attempt.fence, 1, everywhere=True)
    assert old.isdisjoint({pack["key"] for pack in newest(here, attempt)["packs"]})
    # Of the first checkpoint, and of the one that is kept beside the newest.
    assert len(kept(here, attempt)) <= 3 * (COUNT // IN_A_PACK + 2)
    following = here.again(attempt)
    sync_of(here, following).restore()
    assert content(following) == content(attempt)


def test_an_interrupted_upload_goes_on_with_the_packs_that_are_missing(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = here.attempt()
    sync = sync_of(here, attempt)
    fill(attempt)
    put, tries = here.store.put_part, count()

    def fails(key: str, *part: Any) -> bool:  # noqa: ANN401  passed on
        if next(tries) >= 2:
            raise StoreUnreachable("the third is too much")
        return put(key, *part)

    with monkeypatch.context() as patch:
        patch.setattr(here.store, "put_part", fails)
        with pytest.raises(StoreUnreachable):
            sync.step()
    sent = given(here)
    assert sent
    # An agent that was restarted meanwhile.
    other = sync_of(here, attempt)
    other.recall()
    other.step()
    rest = given(here)
    assert not {*rest} & {*sent}
    assert len(rest) + len(sent) == COUNT // IN_A_PACK + 1
    following = here.again(attempt)
    sync_of(here, following).restore()
    assert content(following) == content(attempt)


def test_a_damaged_or_missing_pack_has_the_checkpoint_before_restored(here: Desk) -> None:
    attempt = here.attempt()
    sync = sync_of(here, attempt)
    fill(attempt)
    sync.step()
    saved = content(attempt)
    for damages in (lambda key: here.store.put(key, b"damaged"), here.store.delete):
        given(here)
        fill(attempt, of=f"{damages}")
        sync.step()
        damages(given(here)[0])
        following = here.again(attempt)
        sync_of(here, following).restore()
        assert content(following) == saved
        assert "was skipped" in following.folders.log.read_text()
        attempt, sync = following, sync_of(here, following)
        sync.restore()


def test_nobody_packs_while_a_worker_cannot_restore_packs(here: Desk) -> None:
    old = SqlGateway(here.database, name="old", ttl=timedelta(seconds=60))
    old.register(Machine(uuid4(), 1, 1 << 10, 1 << 10, version=WITHOUT_PACKS))
    attempt = here.attempt()
    sync = sync_of(here, attempt)
    fill(attempt)
    sync.step()
    assert len(given(here)) == COUNT + 1
    assert newest(here, attempt)["version"] == 1


def test_small_files_travel_alone_where_packs_are_too_large(
    here: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = here.attempt()
    sync = sync_of(here, attempt)
    fill(attempt)
    put = here.store.put

    def refuses(key: str, data: bytes, **words: Any) -> bool:  # noqa: ANN401  passed on
        if "/files/" in key and len(data) > BYTES:
            raise ObjectTooLarge("the proxy refuses it")
        return put(key, data, **words)

    monkeypatch.setattr(here.store, "put_part", lambda *_: False)
    monkeypatch.setattr(here.store, "put", refuses)
    sync.step()
    assert newest(here, attempt)["version"] == 1
    following = here.again(attempt)
    sync_of(here, following).restore()
    assert content(following) == content(attempt)
