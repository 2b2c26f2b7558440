"""The disk of a job: how often it is measured, and what its log gives back."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.states import Reason
from forge_worker.files.safe_files import BLOCK
from forge_worker.job_io import watches
from forge_worker.job_io.logs import CHUNK_BYTES, KEPT_BYTES, LogShipper
from forge_worker.job_io.watches import DISK_PERIOD_S, DISK_QUIET_S, LONGEST_DISK_S, DiskWatch
from support.workers.attempts import CountingStore, attempt_of, some_grant

if TYPE_CHECKING:
    from pathlib import Path

    from forge_worker.attempt import LiveAttempt

# Space is given back in whole blocks.
SECTOR = 64 << 10


@pytest.fixture
def attempt(tmp_path: Path) -> LiveAttempt:
    return attempt_of(some_grant(), tmp_path / "attempt")


@pytest.mark.parametrize(
    ("took_s", "period_s"), [(0.01, DISK_PERIOD_S), (0.5, 10.0), (9.0, LONGEST_DISK_S)]
)
def test_folder_that_takes_long_to_measure_is_measured_less_often(
    attempt: LiveAttempt, took_s: float, period_s: float
) -> None:
    times = iter((100.0, 100.0 + took_s, 200.0, 200.0))
    watch = DiskWatch(attempt, 1, clock=lambda: next(times))
    watch.step()
    assert watch.period_s == pytest.approx(period_s)
    assert attempt.stop is None
    watch.step()
    assert watch.period_s == DISK_PERIOD_S


def test_job_that_exceeds_its_disk_is_stopped(attempt: LiveAttempt) -> None:
    (attempt.folders.work / "large").write_bytes(bytes(3 << 20))
    DiskWatch(attempt, 1).step()
    assert attempt.stop is not None
    assert attempt.stop.reason is Reason.DISK_FULL


def test_job_is_measured_again_when_the_disk_loses_much_of_what_it_has_left(
    attempt: LiveAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 1 << 40
    monkeypatch.setattr(DiskWatch, "_free", lambda _: free)
    watch = DiskWatch(attempt, 100)
    assert not watch.idle()
    watch.step()
    free -= 24 << 20
    assert watch.idle()
    free -= 2 << 20
    assert not watch.idle()
    watch.step()
    assert watch.idle()
    # Others may free as much as it writes.
    later = monotonic() + DISK_QUIET_S
    monkeypatch.setattr(watches, "monotonic", lambda: later)
    assert not watch.idle()


class Rows:
    """A gateway that takes every row."""

    def record(self, *_: object) -> bool:
        return True


def test_stored_output_leaves_the_disk_but_for_the_last_of_it(
    attempt: LiveAttempt, tmp_path: Path
) -> None:
    store = CountingStore(tmp_path / "store")
    loop = LogShipper(attempt, store, Rows(), period_s=1)  # type: ignore[arg-type]  # one verb is all it needs
    line = b"a line of output\n"
    said = line * (3 * CHUNK_BYTES // len(line))
    log = attempt.folders.log
    log.write_bytes(said)
    loop.step()
    assert log.stat().st_size == len(said)
    assert log.read_bytes()[-KEPT_BYTES:] == said[-KEPT_BYTES:]
    assert log.stat().st_blocks * BLOCK <= KEPT_BYTES + CHUNK_BYTES + SECTOR
    with log.open("ab") as file:
        file.write(line)
    # A later agent finds the rest where the first one stopped.
    LogShipper(attempt, store, Rows(), period_s=1).step()  # type: ignore[arg-type]  # as above
    assert attempt.cursors["log_start"] == len(said) + len(line)
