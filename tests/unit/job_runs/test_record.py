"""The record that an attempt leaves for a later agent, and which records are unusable."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.states import Reason
from forge_worker.attempt import Stop
from forge_worker.attempt_folders import BYTES, Cursors
from forge_worker.clock import this_boot
from forge_worker.job_runs import job_state
from forge_worker.machine.slots import MachineSlot
from forge_worker.runners.runner import Exit
from support.workers.attempts import attempt_of, some_grant

if TYPE_CHECKING:
    from pathlib import Path

    from forge_worker.attempt import LiveAttempt


@pytest.fixture
def attempt(tmp_path: Path) -> LiveAttempt:
    made = attempt_of(some_grant(), tmp_path / "attempt")
    job_state.record_of(
        made, MachineSlot(0.5, 100, 200, ("GPU-1",)), "docker", "forge-7-1-3"
    ).write()
    return made


def test_places_outlive_their_object_and_need_no_more_room(tmp_path: Path) -> None:
    path = tmp_path / "places"
    cursors = Cursors(path)
    assert cursors["never"] == 0
    cursors.keep(start=1 << 40, number=3)
    cursors.keep(number=4)
    again = Cursors(path)
    assert (again["start"], again["number"], again["never"]) == (1 << 40, 4, 0)
    assert path.stat().st_size == BYTES
    with pytest.raises(ValueError, match="more cursors"):
        cursors.keep(**{f"a long name {n}": n for n in range(200)})
    assert Cursors(path)["number"] == 4


@pytest.mark.parametrize("content", ["", "{", "[]", '{"number": "4"}', '{"number": 4'])
def test_invalid_places_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "places"
    path.write_text(content)
    with pytest.raises(ValueError):  # noqa: PT011  the decoder's own words, or ours
        Cursors(path)


def test_record_is_read_as_it_was_written(attempt: LiveAttempt) -> None:
    attempt.cursors.keep(log_number=5)
    found = job_state.read(attempt.folders)
    assert found is not None
    assert found.attempt.grant == attempt.grant
    assert found.attempt.claimed_s == attempt.claimed_s
    assert found.attempt.cursors["log_number"] == 5
    assert (found.slot, found.kind) == (MachineSlot(0.5, 100, 200, ("GPU-1",)), "docker")
    assert (found.container, found.boot) == ("forge-7-1-3", this_boot())
    assert attempt.folders.fence() == attempt.fence
    root = attempt.folders.root
    assert (job_state.kept_stop(root), job_state.kept_exit(root)) == (None, None)
    job_state.keep_stop(root, Stop(Reason.TIMEOUT, "over 3 s"))
    job_state.keep_exit(root, Exit(137, oom_killed=True, detail="x"))
    assert job_state.kept_stop(root) == Stop(Reason.TIMEOUT, "over 3 s")
    assert job_state.kept_exit(root) == Exit(137, oom_killed=True, detail="x")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("lease.json", None),
        ("lease.json", ""),
        ("lease.json", "[]"),
        ("places", "{"),
        ("stop.json", '{"reason": "no such"}'),
        ("exit.json", '{"status": 3}'),
    ],
)
def test_a_broken_record_counts_as_missing(
    attempt: LiveAttempt, name: str, content: str | None
) -> None:
    path = attempt.folders.root / name
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    assert job_state.read(attempt.folders) is None


def test_record_keeps_the_place_in_a_gang(tmp_path: Path) -> None:
    made = attempt_of(replace(some_grant(), rank=2, nodes=4), tmp_path / "attempt")
    job_state.record_of(made, MachineSlot(0.5, 100, 200), "docker", "forge-7-1-3").write()
    found = job_state.read(made.folders)
    assert found is not None
    assert (found.attempt.grant.rank, found.attempt.grant.nodes) == (2, 4)


def test_record_of_an_older_worker_gives_its_lease_back_and_no_more(attempt: LiveAttempt) -> None:
    path = attempt.folders.root / "lease.json"
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({name: kept[name] for name in ("job_id", "token", "nonce")}))
    assert job_state.read(attempt.folders) is None
    assert attempt.folders.fence() == attempt.fence
