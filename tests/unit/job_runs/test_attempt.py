"""An attempt's reason to stop, and the folders that it leaves."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.states import Reason, Standing
from forge_worker.attempt import LiveAttempt, Stop, Stopped
from forge_worker.attempt_folders import Folders
from structlog.testing import capture_logs
from support.workers.attempts import attempt_of, some_grant

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def attempt(tmp_path: Path) -> LiveAttempt:
    return attempt_of(some_grant(), tmp_path / "attempt")


def test_first_reason_to_stop_wins(attempt: LiveAttempt) -> None:
    assert attempt.stop is None
    assert not attempt.stopping.is_set()
    attempt.request_stop(Stop(Reason.CANCELLED))
    attempt.request_stop(Stop(Reason.TIMEOUT))
    assert attempt.stop == Stop(Reason.CANCELLED)
    assert attempt.stopping.is_set()
    assert not attempt.lost


def test_a_lost_lease_wins_over_every_reason(attempt: LiveAttempt) -> None:
    attempt.request_stop(Stop(Reason.PREEMPTED))
    attempt.lose()
    attempt.request_stop(Stop(Reason.CANCELLED))
    assert attempt.lost


def test_a_loss_is_said_once_and_not_of_an_end_on_its_way(attempt: LiveAttempt) -> None:
    delivering = attempt_of(some_grant(), attempt.folders.root.with_name("delivering"))
    delivering.decide_end()
    with capture_logs() as logs:
        for _ in range(2):
            attempt.heed(Standing.LOST)
            delivering.heed(Standing.LOST)
    assert [entry["event"] for entry in logs] == ["lease_lost"]
    assert delivering.lost


def test_one_of_many_reasons_at_once_is_kept(attempt: LiveAttempt) -> None:
    barrier = threading.Barrier(8)

    def ask(number: int) -> None:
        barrier.wait()
        attempt.request_stop(Stop(Reason.CANCELLED, str(number)))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = attempt.stop
    attempt.request_stop(Stop(Reason.TIMEOUT))
    assert kept is not None
    assert attempt.stop is kept


@pytest.mark.parametrize(
    ("standing", "reason", "said"),
    [
        (Standing.OK, None, None),
        (Standing.CANCELLED, Reason.CANCELLED, "cancelled on request"),
        (Standing.PREEMPTED, Reason.PREEMPTED, "preempted on request"),
        (Standing.TIMEOUT, Reason.TIMEOUT, "longer than 1 min 30 s"),
        (Standing.ENDED, Reason.RUN_ENDED, "the run ended on all machines"),
        (Standing.LOST, Reason.WORKER_LOST, "the lease was lost"),
    ],
)
def test_every_standing_is_heeded(
    tmp_path: Path, standing: Standing, reason: Reason | None, said: str | None
) -> None:
    attempt = attempt_of(replace(some_grant(), timeout_s=90), tmp_path / "limited")
    attempt.heed(standing)
    stop = attempt.stop
    assert (stop and stop.reason, stop and stop.detail) == (reason, said)
    assert attempt.lost == (standing is Standing.LOST)


def test_preparations_end_for_any_reason_and_uploads_for_a_lost_lease_only(
    attempt: LiveAttempt,
) -> None:
    attempt.while_wanted()
    attempt.request_stop(Stop(Reason.PREEMPTED))
    with pytest.raises(Stopped):
        attempt.while_wanted()
    attempt.while_held()
    attempt.lose()
    with pytest.raises(Stopped):
        attempt.while_held()


def test_note_may_hold_any_name(attempt: LiveAttempt) -> None:
    attempt.note("the artifact '\udcff' could not be read")
    assert attempt.folders.log.read_bytes().startswith(b"forge: the artifact '\\udcff'")


@pytest.mark.parametrize(
    "kept", [b"", b"{", b"[]", b"7", b'{"job_id": 1}', b'{"job_id":1,"token":2,"nonce":3}', b"\xff"]
)
def test_an_unreadable_token_counts_as_missing(attempt: LiveAttempt, kept: bytes) -> None:
    (attempt.folders.root / "lease.json").write_bytes(kept)
    assert attempt.folders.fence() is None
    assert Folders(attempt.folders.root / "no").fence() is None


def test_the_agents_own_copies_do_not_count_as_the_jobs(attempt: LiveAttempt) -> None:
    before = attempt.folders.bytes_used()
    attempt.folders.staging.mkdir()
    (attempt.folders.staging / "copy").write_bytes(b"x" * (1 << 20))
    assert attempt.folders.bytes_used() == before
    (attempt.folders.output / "result").write_bytes(b"x" * (1 << 20))
    assert attempt.folders.bytes_used() >= before + (1 << 20)
    with attempt.folders.log.open("ab") as log:
        log.write(b"x" * (1 << 20))
    assert attempt.folders.bytes_used() >= before + (2 << 20)
