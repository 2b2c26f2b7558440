"""The engine is killed under running jobs and restarted: the true end of each job is reported."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from support.engine.own_engine import IMAGE, OwnEngine, own_engine
from support.workers.worker import Bed, Worker, bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.waiting import Eventually

# Only the first attempt meets the engine's end; a later one is there to show that it was run again.
FIRST = '[ "$FORGE_ATTEMPT" = 1 ] || { echo again; exit 0; }; echo up; '
WAITS = "while [ ! -e go ]; do sleep 0.05; done; "
ENDS = f"{FIRST}{WAITS}echo last; exit 7"
# Exits cleanly when asked to, as a stopping engine does.
GOES_ON = f"{FIRST}trap 'exit 0' TERM; {WAITS}echo end"
IS_KILLED = f"{FIRST}{WAITS}"
SETTINGS: dict[str, Any] = {"lease_ttl_s": 60, "network": "none", "default_image": IMAGE}


@pytest.fixture
def live_restore() -> bool:
    """Tell whether containers outlive the engine; a test may have it both ways."""
    return True


@pytest.fixture
def engine(live_restore: bool) -> Iterator[OwnEngine]:  # noqa: FBT001  a case
    with own_engine(live_restore=live_restore) as made:
        yield made


def folder(made: Bed, job: int) -> Path:
    (found,) = made.workers[0].folder.glob(f"jobs/{job}-*")
    return found


def process_of(engine: OwnEngine, job: int) -> int:
    (name,) = [name for name in engine.containers() if name.startswith(f"forge-{job}-")]
    return engine.main_process(name)


@pytest.mark.parametrize(("live_restore", "dies"), [(True, "engine and agent"), (False, "engine")])
def test_every_job_ends_with_the_truth(
    tmp_path: Path, database_url: str, eventually: Eventually, engine: OwnEngine, dies: str
) -> None:
    with bed("docker", tmp_path, database_url, None, {"DOCKER_HOST": engine.url}) as made:
        first = made.worker(**SETTINGS)
        scripts = (ENDS, GOES_ON, IS_KILLED)
        jobs = [made.submit("sh", "-c", script, max_losses=1) for script in scripts]
        for job in jobs:
            made.says(job, "up")
        ends, goes_on, is_killed = jobs
        gone = [process_of(engine, job) for job in (ends, is_killed)]
        if dies != "engine":
            first.kill()
        engine.kill()
        (folder(made, ends) / "work" / "go").touch()
        os.kill(gone[1], signal.SIGKILL)
        eventually(lambda: not any(map(psutil.pid_exists, gone)))
        engine.start()
        if dies != "engine":
            made.worker(**SETTINGS)
        if engine.live_restore:
            (folder(made, goes_on) / "work" / "go").touch()
            made.succeeds(goes_on)
            assert made.log(goes_on).endswith(b"up\nend\n")
            assert [made.ended(job)["exit_code"] for job in (ends, is_killed)] == [7, 137]
            assert made.log(ends).endswith(b"up\nlast\n")
            assert [len(made.reasons(job)) for job in jobs] == [1, 1, 1]
        else:
            # A stopping engine ends what runs, and leaves no trace of what had ended before.
            for job in jobs:
                made.succeeds(job)
                assert made.reasons(job) == ["worker_lost", "succeeded"]
                assert made.log(job).endswith(b"again\n")
    assert engine.containers() == []
    assert engine.mounts() == []


def test_job_is_ended_while_the_engine_is_away_and_its_container_goes_with_the_engines_return(
    tmp_path: Path, database_url: str, engine: OwnEngine, eventually: Eventually
) -> None:
    with bed("docker", tmp_path, database_url, None, {"DOCKER_HOST": engine.url}) as made:
        made.worker(**SETTINGS)
        job = made.submit("sh", "-c", f"echo up; {WAITS}", grace_s=1)
        made.says(job, "up")
        process = process_of(engine, job)
        engine.kill()
        made.queue.cancel(job)
        eventually(lambda: not psutil.pid_exists(process))
        assert made.ended(job)["state"] == "cancelled"
        engine.start()
        eventually(lambda: engine.containers() == [])
    assert engine.mounts() == []


def test_no_job_loses_anything_to_a_worker_whose_engine_is_dead(
    tmp_path: Path, database_url: str, engine: OwnEngine, eventually: Eventually
) -> None:
    with bed("docker", tmp_path, database_url, None, {"DOCKER_HOST": engine.url}) as made:
        worker = made.worker(**SETTINGS)
        engine.kill()
        jobs = [made.submit("true", max_losses=0) for _ in range(3)]
        eventually(lambda: "container engine does not answer" in constraint(made, worker))
        eventually(lambda: [made.job(job)["state"] for job in jobs] == ["ready"] * 3)
        late = made.submit("true", max_losses=0)
        engine.start()
        for job in jobs:
            made.succeeds(job)
            # A claim that was under way as the engine died may have tried a job once, for free.
            assert made.reasons(job) in (["succeeded"], ["start_failed", "succeeded"])
        made.succeeds(late)
        assert made.reasons(late) == ["succeeded"]
        eventually(lambda: constraint(made, worker) == "")


def constraint(made: Bed, worker: Worker) -> str:
    """Return why a worker takes no jobs, according to the queue."""
    (row,) = [row for row in made.registry.workers() if row["name"] == worker.name]
    found: str = row["condition"].get("constrained", "")
    return found
