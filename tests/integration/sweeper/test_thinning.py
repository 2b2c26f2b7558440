"""The thinning of checkpoints: which rows stay, which objects go, and who may be in the way."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.attempt_records import CheckpointRecord
from forge_schema.model.spec import CheckpointSource
from forge_schema.model.states import Reason
from forge_schema.queue import thinning
from forge_schema.queue.thinning import DELETE_S, Thinning
from forge_schema.storage import StoreUnreachable
from forge_schema.storage.file_store import FileStore
from forge_schema.storage.keys import AttemptKeys
from forge_schema.storage.manifest import Entry, Manifest
from forge_worker.job_io.occasions import Thinner
from forge_worker.loop import Loop
from forge_worker.queue.gateway import SqlGateway
from support.queue.rig import Rig, spec
from support.workers.attempts import attempt_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from forge_schema.model.lease import Grant


@dataclass
class Trainer:
    """Holds a job and stores checkpoints of it, whose files are named by their content."""

    rig: Rig
    store: FileStore
    grant: Grant

    def __post_init__(self) -> None:
        self.thinning = Thinning(self.rig.database, self.store)
        self.keys = AttemptKeys(self.job_id, self.grant.attempt, self.grant.fence.mark)
        self.files: dict[str, str] = {}

    @property
    def job_id(self) -> int:
        return self.grant.fence.job_id

    def save(self, number: int, *contents: str, row: bool = True) -> None:
        entries = tuple(self._entry(number, content) for content in contents)
        key = self.keys.checkpoint_manifest(number)
        self.store.put(key, Manifest(entries).dumped())
        if row:
            made = CheckpointRecord(number, key, len(entries), Manifest(entries).size)
            assert self.rig.records.add_checkpoint(self.grant.fence, made)

    def _entry(self, number: int, content: str) -> Entry:
        digest = hashlib.sha256(content.encode()).hexdigest()
        if content not in self.files:
            self.files[content] = self.keys.checkpoint_file(number, digest)
            self.store.put(self.files[content], content.encode())
        return Entry(content, len(content), digest, self.files[content])

    def thin(self, keep: int, *, everywhere: bool = False) -> int:
        return self.thinning.thin(self.grant.fence, keep, everywhere=everywhere)

    def numbers(self) -> list[int]:
        return [row["number"] for row in self.rig.jobs.checkpoints(self.job_id)]

    def contents(self) -> set[str]:
        """Return which files are stored."""
        keys = {one.key for one in self.store.list(f"jobs/{self.job_id}/")}
        return {content for content, key in self.files.items() if key in keys}

    def manifests(self) -> int:
        keys = [one.key for one in self.store.list(f"jobs/{self.job_id}/")]
        return len([key for key in keys if key.endswith(".json")])


@pytest.fixture
def trainer(rig: Rig, tmp_path: Path) -> Trainer:
    rig.submit()
    return Trainer(rig, FileStore(tmp_path / "store"), rig.worker().claim_one())


def later(trainer: Trainer) -> Trainer:
    """Return the next attempt at the job."""
    trainer.rig.finish(trainer.grant, Reason.PREEMPTED)
    grant = trainer.rig.worker("another").claim_one()
    assert grant.fence.job_id == trainer.job_id
    return Trainer(trainer.rig, trainer.store, grant)


def test_the_newest_stay_and_of_the_older_ones_a_few(trainer: Trainer) -> None:
    keep, minutes = 3, 240
    for number in range(minutes):
        trainer.save(number, "same", f"of {number}")
        trainer.thin(keep)
        trainer.rig.clock.advance(60)
        left = trainer.numbers()
        assert left[:keep] == list(range(number, number - keep, -1))[: number + 1]
        # One for each fourfold increase in age: 1 s, 4 s … 4096 s.
        assert len(left) <= keep + 8
    ages = [minutes - number for number in trainer.numbers()]
    assert 2 < len(ages) - keep < 6
    assert max(ages) > 60
    assert trainer.manifests() == len(ages)
    assert trainer.contents() == {"same", *(f"of {minutes - age}" for age in ages)}


def test_what_a_remaining_checkpoint_refers_to_stays(trainer: Trainer) -> None:
    trainer.save(0, "a", "b")
    trainer.save(1, "a", "c")
    trainer.save(2, "c", "d")
    # Their ages are the same, so apart from the newest only the eldest stays.
    assert trainer.thin(1) == 1
    assert trainer.numbers() == [2, 0]
    assert trainer.contents() == {"a", "b", "c", "d"}
    following = later(trainer)
    following.files = dict(trainer.files)
    following.save(0, "d", "e")
    following.save(1, "e")
    following.thin(1)
    assert following.numbers() == [1, 0]
    assert following.contents() == {"a", "b", "e"}


def test_what_a_death_left_goes_later_and_what_is_being_stored_stays(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        trainer.save(number, f"of {number}")

    def gone(_key: str) -> None:
        raise StoreUnreachable("it died between the rows and the objects")

    with monkeypatch.context() as patched:
        patched.setattr(trainer.store, "delete", gone)
        with pytest.raises(StoreUnreachable):
            trainer.thin(1)
    assert trainer.numbers() == [3, 0]
    assert trainer.contents() == {"of 0", "of 1", "of 2", "of 3"}
    trainer.save(4, "half stored", row=False)
    following = later(trainer)
    following.files = dict(trainer.files)
    following.save(0, "of 3")
    # The next checkpoint is already on its way when this attempt is told to thin out.
    following.save(1, "on its way", row=False)
    monkeypatch.setattr(thinning, "MOST", 2)
    # Of the dead attempt: three manifests, and one file of each.
    assert [following.thin(5, everywhere=True) for _ in range(4)] == [2, 2, 2, 0]
    assert following.contents() == {"of 0", "of 3", "on its way"}
    # An attempt that lost its lease thins nothing, and does no harm.
    assert trainer.thin(1, everywhere=True) == 0
    assert following.numbers() == [0, 3, 0]


def test_what_an_unfinished_job_starts_from_stays_until_it_has_ended(trainer: Trainer) -> None:
    rig = trainer.rig
    for number in range(4):
        trainer.save(number, f"of {number}")
    asked = CheckpointSource(job_id=trainer.job_id, attempt=1, number=1)
    child = rig.submit(from_checkpoint=asked)
    trainer.thin(1)
    assert trainer.numbers() == [3, 1, 0]
    (found,) = rig.records.restorable(child)
    assert (found["job_id"], found["number"]) == (trainer.job_id, 1)
    rig.queue.cancel(child)
    trainer.thin(1)
    assert trainer.numbers() == [3, 0]
    assert trainer.contents() == {"of 0", "of 3"}


def test_submit_and_thinning_at_once_leave_no_job_without_its_source(trainer: Trainer) -> None:
    rig = trainer.rig
    for number in range(4):
        trainer.save(number, f"of {number}")
    asked = CheckpointSource(job_id=trainer.job_id, attempt=1, number=1)
    thread = Thread(target=trainer.thin, args=(1,))
    with rig.uncommitted() as queue:
        (child,) = queue.submit([spec(from_checkpoint=asked)])
        # It begins before the submit is visible to others.
        thread.start()
        rig.wait_until_blocked()
    thread.join()
    assert trainer.numbers() == [3, 1, 0]
    assert rig.records.restorable(child)[0]["key"]


def newer(manifest: bytes) -> bytes:
    """Return a manifest as a later version might write it: one more field for each file."""
    told = json.loads(manifest)
    return json.dumps({**told, "files": [{**row, "mode": 420} for row in told["files"]]}).encode()


@pytest.mark.parametrize(
    "changed",
    [
        newer,
        lambda manifest: manifest.replace(b'"version": 1', b'"version": 4'),
        lambda manifest: manifest[:-1],
    ],
    ids=["a new word", "another version", "read badly"],
)
def test_beside_a_manifest_that_is_not_understood_everything_stays(
    trainer: Trainer, changed: Callable[[bytes], bytes]
) -> None:
    for number in range(5):
        trainer.save(number, f"of {number}")
    key = trainer.keys.checkpoint_manifest(4)
    written = trainer.store.get(key)
    trainer.store.put(key, changed(written))
    strange = f"{trainer.keys.checkpoints}index"
    trainer.store.put(strange, b"of a later version")
    assert trainer.thin(1, everywhere=True) == 0
    assert (trainer.numbers(), trainer.manifests()) == ([4, 0], 5)
    assert trainer.contents() == {f"of {number}" for number in range(5)}
    trainer.store.put(key, written)
    assert trainer.thin(1, everywhere=True) == 6
    assert trainer.contents() == {"of 0", "of 4"}
    assert trainer.store.get(strange)


def test_a_call_ends_in_time_and_a_later_one_goes_on(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, delete = [0.0], trainer.store.delete

    def slow(key: str) -> None:
        now[0] += DELETE_S / 2
        delete(key)

    monkeypatch.setattr(trainer.store, "delete", slow)
    trainer.thinning = Thinning(trainer.rig.database, trainer.store, lambda: now[0])
    for number in range(4):
        trainer.save(number, f"of {number}")
    assert [trainer.thin(1), trainer.thin(1, everywhere=True)] == [2, 2]
    assert trainer.contents() == {"of 0", "of 3"}


def test_a_thinning_under_way_holds_up_no_end_and_stops_with_the_attempt(
    trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        trainer.save(number, f"of {number}")
    begun, go, gone = Event(), Event(), list[str]()

    def slow(key: str) -> None:
        gone.append(key)
        begun.set()
        go.wait(60)

    monkeypatch.setattr(trainer.store, "delete", slow)
    rig = trainer.rig
    gateway = SqlGateway(rig.database, name="w", ttl=rig.queue.ttl, store=trainer.store)
    thinner = Thinner(attempt_of(trainer.grant, tmp_path / "attempt"), gateway)
    thinner.start()
    thinner.ask()
    try:
        assert begun.wait(60)
        # It must not wait for the delete, which continues only afterwards.
        thinner.end()
    finally:
        go.set()
    Loop.end(thinner)
    assert len(gone) == 1
    assert trainer.numbers() == [7, 6, 5, 4, 3, 0]
