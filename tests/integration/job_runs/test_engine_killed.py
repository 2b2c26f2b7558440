"""The engine is killed under running jobs and restarted: the true end of each job is reported.

With `FORGE_TEST_OUTAGE_S=180`, it is away from the five jobs of the first test for three minutes,
and a worker waits two for an engine that knows how a job ended.
"""

from __future__ import annotations

import os
import signal
from threading import Event
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from forge_schema.model.states import State
from forge_worker.runners.docker.container import ENGINE_PATIENCE_S
from support.engine.own_engine import IMAGE, OwnEngine, own_engine
from support.waiting import eventually
from support.workers.worker import Bed, Worker, bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# Only the first attempt meets the engine's end; a later one is there to show that it was run again.
FIRST = '[ "$FORGE_ATTEMPT" = 1 ] || { echo again; exit 0; }; echo up; '
WAITS = "while [ ! -e go ]; do sleep 0.05; done; "
ENDS = f"{FIRST}{WAITS}echo last; exit 7"
# Exits cleanly when asked to, as a stopping engine does.
GOES_ON = f"{FIRST}trap 'exit 0' TERM; {WAITS}echo end"
IS_KILLED = f"{FIRST}{WAITS}"
ENDS_WELL = f"{FIRST}{WAITS}echo last"
OUTAGE_S = float(os.environ.get("FORGE_TEST_OUTAGE_S", "0"))
SETTINGS: dict[str, Any] = {
    "lease_ttl_s": 60,
    "network": "none",
    "default_image": IMAGE,
    "sandboxes": 2,
    "verbose": True,
}


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


def printed(made: Bed, job: int) -> bytes:
    """Return what the last attempt of a job printed."""
    return made.log(job, len(made.reasons(job)))


def running(engine: OwnEngine, job: int) -> list[str]:
    return [name for name in engine.running() if name.startswith(f"forge-{job}-")]


def all_started(engine: OwnEngine) -> bool:
    """Tell whether two sandboxes have a job and another waits: an engine may forget a start."""
    names = engine.containers()
    sandboxes = [name for name in names if name.startswith("forge-sandbox-")]
    return len(sandboxes) > SETTINGS["sandboxes"] and sorted(names) == sorted(engine.running())


def most_at_once(made: Bed, engine: OwnEngine, jobs: list[int]) -> int:
    """Wait until all have ended; return the most containers that one of them had meanwhile."""
    counts = [0]

    def over() -> bool:
        counts.extend(len(running(engine, job)) for job in jobs)
        return all(State(made.job(job)["state"]).terminal for job in jobs)

    eventually(over)
    return max(counts)


@pytest.mark.parametrize(
    ("live_restore", "dies"),
    [(True, "engine" if OUTAGE_S else "engine and agent"), (False, "engine")],
)
def test_every_job_ends_with_the_truth(
    tmp_path: Path, database_url: str, engine: OwnEngine, dies: str
) -> None:
    with bed("docker", tmp_path, database_url, None, {"DOCKER_HOST": engine.url}) as made:
        first = made.worker(**SETTINGS)
        eventually(lambda: first.output.count("sandbox_ready") == SETTINGS["sandboxes"])
        scripts = (ENDS, ENDS_WELL, IS_KILLED, GOES_ON, GOES_ON)
        jobs = [made.submit("sh", "-c", script, max_losses=1) for script in scripts]
        for job in jobs:
            made.says(job, "up")
        eventually(lambda: all_started(engine))
        ended, going_on = jobs[:3], jobs[3:]
        gone = [process_of(engine, job) for job in ended]
        if dies != "engine":
            first.kill()
        engine.kill()
        for job in ended[:2]:
            (folder(made, job) / "work" / "go").touch()
        os.kill(gone[2], signal.SIGKILL)
        eventually(lambda: not any(map(psutil.pid_exists, gone)))
        Event().wait(OUTAGE_S)
        engine.start()
        if dies != "engine":
            made.worker(**SETTINGS)
        again = jobs
        if engine.live_restore:
            unknown = OUTAGE_S > ENGINE_PATIENCE_S or engine.forgets()
            again = ended if unknown else []
            eventually(lambda: [len(running(engine, job)) for job in going_on] == [1, 1])
            for job in going_on:
                (folder(made, job) / "work" / "go").touch()
        # A stopping engine ends what runs, and leaves no trace of what had ended before.
        most = most_at_once(made, engine, jobs)
        seen = [(made.reasons(job), printed(made, job)) for job in jobs]
        at_once = [
            (["exit_code"], b"up\nlast\n"),
            (["succeeded"], b"up\nlast\n"),
            (["exit_code"], b"up\n"),
            *[(["succeeded"], b"up\nend\n")] * 2,
        ]
        twice = (["worker_lost", "succeeded"], b"again\n")
        assert seen == [
            twice if job in again else one for job, one in zip(jobs, at_once, strict=True)
        ]
        if not again:
            assert [made.job(job)["exit_code"] for job in jobs] == [7, 0, 137, 0, 0]
        assert most <= 1
    assert engine.containers() == []
    assert engine.mounts() == []


def test_job_is_ended_while_the_engine_is_away_and_its_container_goes_with_the_engines_return(
    tmp_path: Path, database_url: str, engine: OwnEngine
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
        eventually(lambda: not [one for one in engine.containers() if "sandbox" not in one])
    assert engine.containers() == []
    assert engine.mounts() == []


def test_no_job_loses_anything_to_a_worker_whose_engine_is_dead(
    tmp_path: Path, database_url: str, engine: OwnEngine
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
