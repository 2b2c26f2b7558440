"""A worker that cannot start jobs says so and tries again, one job at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_worker.machine.watched import LONGEST_REST_S, REST_S, ROW, EngineHealth
from forge_worker.runners.docker.runner import DockerRunner

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Watch:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def broken(watch: Watch) -> EngineHealth:
    """Return the health of a worker that failed to start a job often enough."""
    health = EngineHealth(None, clock=watch)
    for job in range(ROW):
        health.failed(job, "no space left on device")
    return health


def test_a_worker_rests_after_a_start_that_failed_so_that_another_takes_the_job() -> None:
    watch = Watch()
    health = EngineHealth(None, clock=watch)
    assert health.room(0) is None
    health.failed(1, "why")
    assert (health.room(0), health.reason) == (0, "")
    watch.now += REST_S
    assert health.room(5) is None


def test_failures_in_a_row_are_the_machines_and_say_why() -> None:
    watch = Watch()
    health = broken(watch)
    assert f"{ROW} jobs in a row" in health.reason
    assert "no space left on device" in health.reason
    assert health.room(0) == 0


def test_after_each_rest_one_job_is_tried_and_the_rests_grow_to_a_limit() -> None:
    watch = Watch()
    health = broken(watch)
    rests = []
    for job in range(ROW, ROW + 9):
        began = watch.now
        while health.room(0) == 0:
            watch.now += REST_S
        rests.append(watch.now - began)
        assert (health.room(0), health.room(1)) == (1, 0)
        health.failed(job, "still")
    assert rests == sorted(rests)
    assert rests[-1] == LONGEST_REST_S


def test_the_first_job_that_starts_ends_it() -> None:
    watch, told = Watch(), []
    health = EngineHealth(None, clock=watch, changed=lambda: told.append(watch.now))
    for job in range(ROW):
        health.failed(job, "why")
    assert len(told) == 1
    health.started()
    assert (health.reason, health.room(9), len(told)) == ("", None, 2)


def test_a_success_between_failures_begins_the_row_anew() -> None:
    health = EngineHealth(None)
    for job in range(2 * ROW):
        health.failed(job, "why")
        health.started()
    assert health.reason == ""


def test_a_single_job_that_never_starts_keeps_the_worker_from_no_other() -> None:
    watch = Watch()
    health = EngineHealth(None, clock=watch)
    for _ in range(2 * ROW):
        health.failed(7, "its image has a file where its folder must be")
        watch.now += REST_S
        assert (health.room(5), health.reason) == (None, "")


def test_no_claim_after_the_engine_died_though_no_check_has_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
    health = EngineHealth(DockerRunner())
    assert (health.reason, health.room(0)) == ("", 0)
