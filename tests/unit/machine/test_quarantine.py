"""The quarantine, and the XIDs that cause it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_worker.machine.gpu_health import FILE, Quarantine, release
from forge_worker.machine.xid_events import FATAL, xid_fault

if TYPE_CHECKING:
    from pathlib import Path


def test_restart_of_the_worker_remembers_and_one_of_the_machine_forgets(tmp_path: Path) -> None:
    first = Quarantine(tmp_path)
    assert first.add("GPU-a", "XID 79")
    assert not first.add("GPU-a", "XID 31")
    again = Quarantine(tmp_path)
    assert again.uuids == {"GPU-a"}
    assert again.reasons() == {"GPU-a": "XID 79"}
    rebooted = Quarantine(tmp_path, boot=lambda: "another")
    assert rebooted.uuids == frozenset()
    rebooted.add("GPU-b", "XID 48")
    assert Quarantine(tmp_path, boot=lambda: "another").uuids == {"GPU-b"}


def test_operator_releases(tmp_path: Path) -> None:
    assert release(tmp_path) == []
    Quarantine(tmp_path).add("GPU-a", "XID 79")
    assert release(tmp_path) == ["GPU-a"]
    assert Quarantine(tmp_path).uuids == frozenset()


def test_an_invalid_file_and_a_missing_folder_stop_no_worker(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    assert Quarantine(tmp_path).uuids == frozenset()
    assert Quarantine(tmp_path / "gone").add("GPU-a", "XID 79")


def test_xids_of_the_job_are_not_the_gpus() -> None:
    # A job that computes nonsense can cause these, and the next job on the GPU does not suffer.
    assert FATAL.keys().isdisjoint({13, 31, 32, 43, 45, 68, 69, 109})
    assert xid_fault(79) == "XID 79: the GPU has fallen off the bus"
    assert [xid_fault(code) for code in (13, 31, 43, 45, 63, 92)] == [None] * 6
