"""Which GPUs a worker lends to which job: never one GPU to two jobs, in any order of events."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from forge_schema.model.worker import Capacity
from forge_worker.devices import GpuDevice, Use
from forge_worker.machine.locks import Locks, LocksUnusable
from forge_worker.machine.slots import Choice, GpuPool, MachineSlot, Slots
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

BIG = [GpuDevice(f"GPU-{n}", "NVIDIA A100", 40_000) for n in range(3)]
SMALL = [GpuDevice(f"GPU-{n}", "NVIDIA T4", 16_000) for n in range(3, 5)]
GPUS = BIG + SMALL
TOTAL = Capacity(1000, 1_000_000, 1_000_000)
# Of the workers that end jobs in any order; so many may be stored at once.
MAX_JOBS = 2


def slots_of(
    folder: Path, used: dict[str, Use], gpus: list[GpuDevice] = GPUS, *, max_jobs: int = 100
) -> Slots:
    return Slots(TOTAL, GpuPool(gpus, lambda _: used, Locks(folder)), max_jobs=max_jobs)


def lent(slots: Slots) -> list[str]:
    return [uuid for slot in slots.lent.values() for uuid in slot.gpu_uuids]


def test_slots_say_what_is_free_also_as_if_a_job_were_gone() -> None:
    slots = Slots(Capacity(4, 1000, 1000), max_jobs=3)
    assert slots.choices() == [None]
    with slots.offer() as offered:
        assert offered == (Capacity(4, 1000, 1000), 3)
        slots.lend(1, Capacity(1.5, 300, 200))
        slots.lend(2, Capacity(2.5, 700, 800))
    with slots.offer() as offered:
        assert offered == (Capacity(0, 0, 0), 1)
    with slots.offer(without={2}) as offered:
        assert offered == (Capacity(2.5, 700, 800), 2)
    assert slots.jobs == 2
    for _ in range(2):
        slots.take_back(1)
    with slots.offer() as offered:
        assert offered == (Capacity(1.5, 300, 200), 2)


def test_of_a_job_that_has_ended_only_the_disk_is_lent(tmp_path: Path) -> None:
    one, two = (slots_of(tmp_path, {}, BIG, max_jobs=1) for _ in range(2))
    (choice,) = one.choices()
    with one.offer(choice):
        one.lend(1, Capacity(600, 1000, 900_000, 3))
    for _ in range(2):
        one.keep_disk(1)
    assert one.lent == {1: MachineSlot(0, 0, 900_000)}
    assert one.jobs == 1
    with one.offer(choice) as (free, room):
        assert (free.cpus, free.memory_mb, free.disk_mb) == (1000, 1_000_000, 100_000)
        assert (free.gpus, room) == (3, 1)
    # Another worker of the machine may lock them, too.
    with two.offer(choice) as (free, _):
        assert free.gpus == 3
    with one.offer(choice, without={1}) as (free, room):
        assert (free.disk_mb, room) == (1_000_000, 1)
    one.take_back(1)
    one.keep_disk(1)
    assert one.lent == {}


def test_jobs_that_end_while_as_many_are_stored_as_may_run_keep_their_slots(tmp_path: Path) -> None:
    slots = slots_of(tmp_path, {}, BIG, max_jobs=2)
    (choice,) = slots.choices()
    for token in (1, 2, 3, 4):
        with slots.offer(choice):
            slots.lend(token, Capacity(1, 1, 1, 1 if token > 1 else 0))
        slots.keep_disk(token)
    assert [slot.cpus for slot in slots.lent.values()] == [0, 0, 1, 1]
    with slots.offer(choice) as (free, room):
        assert (free.cpus, free.gpus, room) == (998, 1, 0)
    slots.take_back(2)
    with slots.offer(choice) as (free, room):
        assert (free.cpus, free.gpus, room) == (999, 2, 1)


def test_operator_may_have_each_job_stored_before_the_next_starts() -> None:
    slots = Slots(Capacity(4, 1000, 1000), max_jobs=1, max_storing=0)
    slots.lend(1, Capacity(1, 1, 1))
    slots.keep_disk(1)
    with slots.offer() as (free, room):
        assert (free.cpus, room) == (3, 0)


def test_gpus_of_a_job_that_had_ended_before_the_boot_are_not_lent_again(tmp_path: Path) -> None:
    slots = slots_of(tmp_path, {}, BIG, max_jobs=1)
    runs, ended = MachineSlot(1, 1, 5, ("GPU-0",)), MachineSlot(1, 1, 7, ("GPU-0",))
    slots.lend_again(1, runs)
    # More may be stored than usual: nobody knows which of them were to keep their slots.
    for token in (2, 3):
        slots.lend_again(token, ended, ended=True)
    assert slots.lent == {1: runs, 2: MachineSlot(0, 0, 7), 3: MachineSlot(0, 0, 7)}
    slots.keep_disk(2)
    slots.take_back(2)
    assert slots.gpus_lent() == {"GPU-0"}
    assert not Locks(tmp_path).take("GPU-0")


def test_each_kind_is_offered_separately(tmp_path: Path) -> None:
    used: dict[str, Use] = {}
    slots = slots_of(tmp_path, used)
    big, small = Choice("NVIDIA A100", 40_000, 40_000), Choice("NVIDIA T4", 16_000, 16_000)
    assert slots.choices() == [big, small]
    with slots.offer(big) as (free, _):
        assert (free.gpus, free.gpus_in_all, free.gpu_model, free.vram_mb) == (
            *(3, 3),
            *("NVIDIA A100", 40_000),
        )
        slot = slots.lend(7, Capacity(1, 1, 1, 2, "a100*", 30_000))
        assert (slot.gpu_uuids, slot.vram_mb, slot.gpu_vendor) == (
            *(("GPU-0", "GPU-1"), 40_000),
            "nvidia",
        )
        with pytest.raises(ValueError, match="2 GPUs needed, but only 1 held"):
            slots.lend(8, Capacity(1, 1, 1, 2))
    with slots.offer(small) as (free, _):
        assert (free.gpus, free.gpus_in_all) == (2, 2)
    # In place of a job that ends, one for its own kind is looked for first.
    with slots.offer(small):
        slots.lend(9, Capacity(1, 1, 1, 2))
    assert slots.choices() == [big]
    assert slots.choices(without={9}) == [small, big]
    with slots.offer(small, without={9}) as (free, _):
        assert (free.gpus, free.gpus_in_all) == (2, 2)


def test_a_stranger_keeps_a_gpu_and_a_desktop_only_memory(tmp_path: Path) -> None:
    used = {"GPU-0": Use(frozenset({1234})), "GPU-1": Use(taken_mb=500), "GPU-3": Use(gone=True)}
    slots = slots_of(tmp_path, used)
    all_big, empty, small = slots.choices()
    assert (all_big, empty) == (
        Choice("NVIDIA A100", 40_000, 39_500),
        Choice("NVIDIA A100", 40_000, 40_000),
    )
    for choice, gpus in ((all_big, 2), (empty, 1), (small, 1)):
        with slots.offer(choice) as (free, _):
            assert (free.gpus, free.gpus_in_all, free.vram_mb) == (
                *(gpus, gpus),
                choice.free_mb if choice else 0,
            )
    # The processes of the job that has a GPU are no stranger's; it will be free.
    with slots.offer(all_big):
        slots.lend(1, Capacity(1, 1, 1, 2))
    used["GPU-1"] = Use(frozenset({77}))
    with slots.offer(all_big) as (free, _):
        assert (free.gpus, free.gpus_in_all) == (0, 2)
    # But once it has ended, what still computes there does not belong there.
    with slots.offer(all_big, without={1}) as (free, _):
        assert (free.gpus, free.gpus_in_all) == (1, 1)
    slots.gpus.withdraw("GPU-2")
    with slots.offer(all_big, without={1}) as (free, _):
        assert (free.gpus, free.gpus_in_all) == (0, 0)


def test_after_a_job_it_is_looked_anew_who_uses_its_gpus(tmp_path: Path) -> None:
    asked: list[bool] = []

    def used(anew: bool) -> dict[str, Use]:  # noqa: FBT001  as the pool calls it
        asked.append(anew)
        return {}

    slots = Slots(TOTAL, GpuPool(BIG, used, Locks(tmp_path)), max_jobs=9)
    (choice,) = slots.choices()
    with slots.offer(choice):
        slots.lend(1, Capacity(1, 1, 1, 1))
    # Also once the locks are held: whoever had them may have died, and left a job.
    assert asked == [False, True]
    slots.take_back(1)
    slots.choices()
    slots.choices()
    slots.choices(without={1})
    assert asked[2:] == [True, False, True]


def test_two_workers_share_the_gpus_of_a_machine(tmp_path: Path) -> None:
    one, two = (slots_of(tmp_path / "locks", {}, BIG) for _ in range(2))
    (choice,) = one.choices()
    with one.offer(choice) as (free, _):
        # What one counts, the other does not have, until it is clear who gets it.
        with two.offer(choice) as (other, _):
            assert (free.gpus, other.gpus, other.gpus_in_all) == (3, 0, 3)
        one.lend(1, Capacity(1, 1, 1, 1))
    with two.offer(choice) as (other, _):
        assert other.gpus == 2
        two.lend(1, Capacity(1, 1, 1, 2))
    assert sorted(lent(one) + lent(two)) == ["GPU-0", "GPU-1", "GPU-2"]
    one.take_back(1)
    with two.offer(choice) as (other, _):
        assert other.gpus == 1
    # A job that outlived its agent is lent again what it has, before all others.
    after = slots_of(tmp_path / "locks", {}, BIG)
    after.lend_again(5, MachineSlot(1, 1, 1, ("GPU-0",)))
    with two.offer(choice) as (other, _):
        assert other.gpus == 0


def test_lock_that_cannot_be_had_leaves_none_taken(tmp_path: Path) -> None:
    one, two = (slots_of(tmp_path, {}, BIG) for _ in range(2))
    (choice,) = one.choices()
    (tmp_path / "GPU-2").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LocksUnusable), one.offer(choice):
        pass
    (tmp_path / "GPU-2").unlink()
    with two.offer(choice) as (free, _):
        assert free.gpus == 3
    with one.offer(choice) as (free, _):
        assert free.gpus == 3


def test_locks_are_for_every_user_and_follow_no_link(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    locks = Locks(folder)
    # As in the worker's systemd unit.
    before = os.umask(0o077)
    assert locks.take("MIG-GPU-1/2/0")
    os.umask(before)
    assert locks.take("MIG-GPU-1/2/0")
    assert folder.stat().st_mode & 0o7777 == 0o1777
    assert (folder / "MIG-GPU-1_2_0").stat().st_mode & 0o777 == 0o644
    assert not Locks(folder).take("MIG-GPU-1/2/0")
    locks.free("MIG-GPU-1/2/0")
    locks.free("MIG-GPU-1/2/0")
    assert Locks(folder).take("MIG-GPU-1/2/0")
    (folder / "GPU-a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LocksUnusable) as refused:
        locks.take("GPU-a")
    assert "FORGE_LOCK_DIR" in refused.value.hint
    (tmp_path / "file").touch()
    with pytest.raises(LocksUnusable):
        Locks(tmp_path / "file").take("GPU-b")


class Sharing(RuleBasedStateMachine):
    """Two workers that claim, lend and take back in any order; strangers come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.used: dict[str, Use] = {}
        self.folder = TemporaryDirectory()
        self.workers = [
            slots_of(Path(self.folder.name), self.used, max_jobs=MAX_JOBS) for _ in range(2)
        ]
        self.token = 0

    @rule(which=st.integers(0, 1), wants=st.lists(st.integers(1, 4), max_size=3))
    def claim(self, which: int, wants: list[int]) -> None:
        """Claim for each choice as a queue would grant: what fits, one after another."""
        slots = self.workers[which]
        for choice in slots.choices():
            with slots.offer(choice) as (free, _):
                self.grant(slots, free, wants)

    def grant(self, slots: Slots, free: Capacity, wants: list[int]) -> None:
        left = free.gpus
        for gpus in wants:
            if gpus <= left:
                self.token += 1
                slot = slots.lend(self.token, Capacity(1, 1, 1, gpus, free.gpu_model, free.vram_mb))
                assert len(set(slot.gpu_uuids)) == gpus
                assert len({gpu.kind for gpu in GPUS if gpu.uuid in slot.gpu_uuids}) == 1
                assert not any(self.used.get(uuid, Use()).computing for uuid in slot.gpu_uuids)
                left -= gpus

    @precondition(lambda self: any(slots.lent for slots in self.workers))
    @rule(data=st.data(), wants=st.lists(st.integers(1, 4), max_size=2))
    def deliver(self, data: st.DataObject, wants: list[int]) -> None:
        """End a job and claim in its place, as one act; its answer may be lost."""
        pairs = [(slots, token) for slots in self.workers for token in sorted(slots.lent)]
        slots, token = data.draw(st.sampled_from(pairs))
        choice = slots.choices(without={token})[0]
        with slots.offer(choice, without={token}) as (free, _):
            if data.draw(st.booleans()):
                slots.take_back(token)
                self.grant(slots, free, wants)

    @precondition(lambda self: any(slots.lent for slots in self.workers))
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        pairs = [(slots, token) for slots in self.workers for token in sorted(slots.lent)]
        slots, token = data.draw(st.sampled_from(pairs))
        slots.take_back(token)
        slots.take_back(token)

    @precondition(lambda self: any(slots.lent for slots in self.workers))
    @rule(data=st.data())
    def store(self, data: st.DataObject) -> None:
        """End a job whose output is still to be stored."""
        pairs = [(slots, token) for slots in self.workers for token in sorted(slots.lent)]
        slots, token = data.draw(st.sampled_from(pairs))
        slots.keep_disk(token)

    @rule(uuid=st.sampled_from([gpu.uuid for gpu in GPUS]), comes=st.booleans())
    def stranger(self, uuid: str, *, comes: bool) -> None:
        if comes and uuid not in lent(self.workers[0]) + lent(self.workers[1]):
            self.used[uuid] = Use(frozenset({1}))
        else:
            self.used.pop(uuid, None)

    @invariant()
    def a_gpu_is_lent_once(self) -> None:
        both = [uuid for slots in self.workers for uuid in lent(slots)]
        assert len(both) == len(set(both))

    @invariant()
    def few_hold_only_disk(self) -> None:
        for slots in self.workers:
            assert sum(not slot.cpus for slot in slots.lent.values()) <= MAX_JOBS

    @invariant()
    def what_nobody_has_is_offered(self) -> None:
        taken = {uuid for slots in self.workers for uuid in lent(slots)} | set(self.used)
        for slots in self.workers:
            offered = 0
            for choice in slots.choices():
                with slots.offer(choice) as (free, _):
                    offered += free.gpus
            assert offered == len(GPUS) - len(taken)

    def teardown(self) -> None:
        for slots in self.workers:
            for token in slots.lent:
                slots.take_back(token)
        self.folder.cleanup()


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
