"""When a job counts as stalled, on the test's clock, with one check a second."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from forge_schema.model.states import Reason
from forge_worker.job_io.usage import AttemptUsage
from forge_worker.job_io.watches import COUNTED_PERIODS, LONGEST_S, stall_watches
from forge_worker.machine.gpu_health import GpuLook, GpuMeter
from support.workers.attempts import attempt_of, some_grant

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from forge_worker.attempt import LiveAttempt


class Meter:
    """GPUs that are as busy as a test says."""

    def __init__(self) -> None:
        self.percent: dict[str, float | None] = {}

    def look(self, uuids: Iterable[str]) -> dict[str, GpuLook]:
        return {uuid: GpuLook(utilisation=self.percent[uuid]) for uuid in uuids}


class Job:
    """An attempt with rules, looked at once a second."""

    def __init__(self, folder: Path, gpus: int = 0, **rules: Any) -> None:  # noqa: ANN401 - of a Stall
        grant = some_grant()
        grant = replace(grant, spec={**grant.spec, "stall": rules})
        self.attempt: LiveAttempt = attempt_of(grant, folder)
        self.meter = Meter()
        self.now = 0.0
        names = [f"GPU-{n}" for n in range(gpus)]
        self.meter.percent = dict.fromkeys(names, 0.0)
        watched = AttemptUsage(self.attempt, names, cast("GpuMeter", self.meter), lambda: self.now)
        self.watched = watched
        self.watches = stall_watches(self.attempt, watched, gpus, lambda: self.now)

    def goes_on(self, seconds: int, *, looks: bool = True) -> bool:
        """Check once a second; tell whether the job has stalled by then."""
        for _ in range(seconds):
            self.now += 1
            if looks:
                self.watched.look()
            for watch in self.watches:
                watch.step()
        return self.attempt.stopping.is_set()

    def tells(self, text: str) -> None:
        with self.attempt.folders.metrics.open("a") as file:
            file.write(text)

    @property
    def log(self) -> str:
        return self.attempt.folders.log.read_text()


def test_job_without_rules_is_not_watched(tmp_path: Path) -> None:
    assert Job(tmp_path / "a").watches == []
    assert Job(tmp_path / "b", idle_gpu_percent=10).watches == []
    assert len(Job(tmp_path / "c", silent_log_s=5, a_rule_of_a_newer_server=5).watches) == 1


def test_silent_job_is_stopped_as_a_failure_and_told_what_to_do(tmp_path: Path) -> None:
    job = Job(tmp_path / "a", silent_log_s=10, no_progress_s=3600, idle_gpu_s=3600, gpus=1)
    assert not job.goes_on(10)
    with job.attempt.folders.log.open("a") as log:
        log.write("x")
    assert not job.goes_on(10)
    assert job.goes_on(1)
    stop = job.attempt.stop
    assert stop is not None
    assert (stop.reason, stop.detail, stop.lost) == (Reason.STALLED, "no output for 10 s", False)
    assert "raise or remove --stall-silent-log" in job.log
    said = job.log
    assert job.goes_on(20)
    assert job.log == said


@pytest.mark.parametrize(
    ("text", "alive"),
    [
        ('{"step": 8}\n', True),
        ('{"progress": 0.5}\n', True),
        ('{"step": 7}\n{"step": 3}\n{"step": 4}\n', True),
        ('{"step": 9}\n{"loss": 1}\n{"step": 2}\nno JSON\n', True),
        ('{"step": 7}\n', False),
        ('{"step": 6}\n', False),
        ('{"loss": 0.1}\n', False),
        ('{"step": 8}', False),
        ('{"step": "eight"}\n[8]\n', False),
    ],
)
def test_progress_is_what_rises(tmp_path: Path, text: str, *, alive: bool) -> None:
    job = Job(tmp_path / "a", no_progress_s=10)
    job.goes_on(1)
    job.tells('{"step": 7}\n')
    assert not job.goes_on(10)
    job.tells(text)
    assert job.goes_on(1) is not alive


def test_progress_is_read_on_where_a_line_ends_later_and_where_the_file_begins_anew(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path / "a", no_progress_s=10)
    job.goes_on(1)
    job.tells('{"step": 1}\n{"st')
    assert not job.goes_on(10)
    job.tells('ep": 2}\n')
    assert not job.goes_on(10)
    job.attempt.folders.metrics.write_text('{"step": 3}\n')
    assert not job.goes_on(10)
    assert job.goes_on(1)
    assert job.attempt.stop is not None
    assert job.attempt.stop.detail == "no progress reported for 10 s"


def test_what_was_told_before_an_adoption_is_no_sign_of_life_now(tmp_path: Path) -> None:
    job = Job(tmp_path / "a", no_progress_s=10)
    job.tells('{"step": 1}\n{"step": 2}\n')
    assert not job.goes_on(10)
    assert job.goes_on(1)


def test_one_busy_gpu_is_enough_and_idle_ones_are_not(tmp_path: Path) -> None:
    job = Job(tmp_path / "a", gpus=2, idle_gpu_s=10, idle_gpu_percent=20)
    job.meter.percent = {"GPU-0": 0, "GPU-1": 21}
    assert not job.goes_on(30)
    job.meter.percent = {"GPU-0": 20, "GPU-1": 20}
    assert not job.goes_on(9)
    assert job.goes_on(1)
    assert job.attempt.stop is not None
    assert job.attempt.stop.detail == "no GPU busier than 20% for 10 s"


def test_gpus_without_a_utilization_figure_never_stall_a_job(tmp_path: Path) -> None:
    job = Job(tmp_path / "a", gpus=2, idle_gpu_s=10)
    assert not job.goes_on(30, looks=False)
    # The driver hung, and the time in which nobody could look counts for nothing without a look.
    job.meter.percent = {"GPU-0": 0, "GPU-1": None}
    assert not job.goes_on(30)
    assert job.log.count("do not report their utilisation") == 1


def test_time_without_a_sample_of_the_gpu_counts_little(tmp_path: Path) -> None:
    job = Job(tmp_path / "a", gpus=1, idle_gpu_s=100)
    assert job.watches[0].period_s == LONGEST_S
    assert not job.goes_on(10)
    # One look is idle, and so is one much later; between them nobody looked.
    assert not job.goes_on(1000, looks=False)
    counted_s = 9 + COUNTED_PERIODS * LONGEST_S
    assert not job.goes_on(int(100 - counted_s))
    assert job.goes_on(1)


def test_rule_about_gpus_is_ignored_without_any_and_that_is_said(tmp_path: Path) -> None:
    job = Job(tmp_path / "a", idle_gpu_s=10)
    assert job.watches == []
    assert "the job has no GPU: --stall-idle-gpu is ignored" in job.log


def test_machine_that_stood_still_counts_little(tmp_path: Path) -> None:
    job = Job(tmp_path / "a", silent_log_s=3600)
    assert job.watches[0].period_s == LONGEST_S
    job.goes_on(1)
    job.now += 86_400
    assert not job.goes_on(3600 - int(COUNTED_PERIODS * LONGEST_S))
    assert job.goes_on(1)
