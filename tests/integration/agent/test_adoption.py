"""An agent that is killed and restarts: its jobs continue as if nothing had happened."""

from __future__ import annotations

import signal
import subprocess
from contextlib import ExitStack
from fcntl import LOCK_EX, flock
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.model.lease import End, Fence
from forge_schema.model.spec import Resources
from forge_schema.model.states import Reason
from forge_worker.attempt_folders import Cursors
from support.workers.http_bed import http_bed
from support.workers.worker import (
    Bed,
    Worker,
    bed,
    containers_of,
    keepers_of,
    processes_below,
    sandboxes_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.waiting import Eventually

# Prints numbers to its log, its metrics and its checkpoint, until it is told to stop.
COUNTS = """
import json, os, pathlib, threading
metrics = open(os.environ["FORGE_METRICS_FILE"], "a")
state = pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"], "state")
turn = 0
while not pathlib.Path("go").exists():
    print("turn", turn, flush=True)
    metrics.write(json.dumps({"step": turn}) + "\\n")
    metrics.flush()
    if turn % 10 == 0:
        state.with_name("new").write_text(str(turn))
        state.with_name("new").rename(state)
    turn += 1
    threading.Event().wait(0.02)
pathlib.Path(os.environ["FORGE_OUTPUT_DIR"], "turns").write_text(str(turn))
"""
# Exits with 7 once told, and prints a lot just before.
ENDS = """
import os, pathlib, threading
print("up", flush=True)
while not pathlib.Path("go").exists():
    threading.Event().wait(0.02)
os.write(1, b"x" * 60_000 + b"last")
raise SystemExit(7)
"""
# Exits with 0 when asked to stop, but takes its time; when run again, it has nothing to do.
LEAVES = """
import os, pathlib, signal, sys, threading
if os.environ["FORGE_ATTEMPT"] != "1": sys.exit()
def leave(*_):
    print("asked", flush=True)
    while not pathlib.Path("go").exists():
        threading.Event().wait(0.02)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("up", flush=True)
while True: signal.pause()
"""
# A lease that lasts until an agent is back, even on a busy machine.
LASTS: dict[str, Any] = {"lease_ttl_s": 60, "log_flush_s": 0.5}


@pytest.fixture(params=["sql", "http"])
def either(request: pytest.FixtureRequest, tmp_path: Path, database_url: str) -> Iterator[Bed]:
    """A bed of workers, once with each transport."""
    if request.param == "sql":
        with bed("docker", tmp_path, database_url) as made:
            yield made
    else:
        with http_bed(tmp_path, database_url, kind="docker", ttl_s=60) as served:
            yield served


def folder_of(worker: Worker, job: int) -> Path:
    (folder,) = worker.folder.glob(f"jobs/{job}-*")
    return folder


def let_go(worker: Worker, job: int) -> None:
    (folder_of(worker, job) / "work" / "go").touch()


def sandbox_of(worker: Worker) -> str:
    named = ("--filter", f"label=forge.worker={worker.name}", "--format")
    found = subprocess.check_output(["docker", "ps", *named, '{{.Label "forge.sandbox"}}'])
    return found.decode().strip()


def lease(made: Bed, job: int) -> dict[str, Any]:
    with made.database.connection() as connection:
        (row,) = connection.execute("SELECT * FROM lease WHERE job_id = %s", [job]).fetchall()
    return row


def printed(made: Bed, job: int) -> bytes:
    """Return a job's output without the worker's own lines."""
    lines = made.log(job).splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(b"forge: "))


def says_more(made: Bed, job: int, eventually: Eventually) -> None:
    seen = len(made.log(job))
    eventually(lambda: len(made.log(job)) > seen, every=0.1)


def replaced(made: Bed, job: int) -> list[str]:
    """Return the worker of each agent that has reported the job as its own since a restart."""
    events = made.jobs.events(job)
    return [one["detail"]["worker"] for one in events if one["action"] == "agent replaced"]


def test_running_job_goes_on_through_two_kills(either: Bed, eventually: Eventually) -> None:
    large = Resources(cpus=3, memory_mb=256, disk_mb=500)
    first = either.worker(**LASTS, sandboxes=1, verbose=True)
    eventually(lambda: "sandbox_ready" in first.output)
    job = either.script(COUNTS, resources=large)
    either.says(job, "turn 5\n")
    sandbox = sandbox_of(first)
    assert sandbox
    started_at = lease(either, job)["started_at"]
    first.kill()
    second = either.worker(**LASTS)
    says_more(either, job, eventually)
    # On a busy machine, it may take longer to report than to store output.
    eventually(lambda: len(replaced(either, job)) == 1, every=0.1)
    second.kill()
    # An agent that is killed before it is done with what it found.
    hasty = either.begin(**LASTS)
    eventually(lambda: "adopted" in hasty.output)
    hasty.kill()
    reported = len(replaced(either, job))
    # The job's resources are not lent to another.
    other = either.script("print('other')", resources=large)
    third = either.worker(**LASTS)
    says_more(either, job, eventually)
    eventually(lambda: len(replaced(either, job)) > reported, every=0.1)
    assert either.job(other)["state"] == "ready"
    # The other agents removed those that no job had.
    assert sandboxes_of(third.folder) == [sandbox]
    let_go(third, job)
    either.succeeds(job)
    either.succeeds(other)
    eventually(lambda: sandboxes_of(third.folder) == [])
    (attempt,) = either.jobs.attempts(job)
    assert (attempt["reason"], attempt["started_at"]) == ("succeeded", started_at)
    # The hasty agent may have been killed before it could report.
    assert replaced(either, job) in ([first.name] * 2, [first.name] * 3)
    count = int(either.artifacts(job)["turns"])
    assert printed(either, job) == b"".join(b"turn %d\n" % n for n in range(count))
    lines = either.jobs.metrics(job)
    assert [(line["number"], line["step"]) for line in lines] == [(n, n) for n in range(len(lines))]
    assert len(lines) == min(count, 1000)
    # The killed agents' keepers exit with the job.
    eventually(lambda: not any(map(keepers_of, (first, second, hasty))))


def test_what_happened_while_no_agent_ran_is_told_as_it_was(
    docker: Bed, eventually: Eventually
) -> None:
    first = docker.worker(**LASTS)
    names = ("ended", "lost", "asked", "leaving", "late", "broken")
    sources = (ENDS, LEAVES, LEAVES, LEAVES, LEAVES, LEAVES)
    limits = {"late": {"timeout_s": 3600}, "lost": {"max_losses": 1}, "broken": {"max_losses": 1}}
    jobs = {
        name: docker.script(source, **limits.get(name, {}))
        for name, source in zip(names, sources, strict=True)
    }
    for job in jobs.values():
        docker.says(job, "up")
    # Told to leave before the agent was killed: whatever its exit code, it was not done.
    docker.queue.preempt(jobs["leaving"])
    docker.says(jobs["leaving"], "asked")
    first.kill()
    let_go(first, jobs["ended"])
    let_go(first, jobs["leaving"])
    eventually(lambda: len(running(docker)) == 4)
    docker.queue.cancel(jobs["asked"])
    let_go(first, jobs["asked"])
    let_go(first, jobs["late"])
    let_go(first, jobs["lost"])
    let_go(first, jobs["broken"])
    cursors = Cursors(folder_of(first, jobs["late"]) / "places")
    cursors.keep(started_ms=cursors["started_ms"] - 3_600_000)
    (folder_of(first, jobs["broken"]) / "places").write_text("{")
    row = lease(docker, jobs["lost"])
    fence = Fence(row["job_id"], row["token"], row["nonce"])
    docker.queue.finish([End(fence, Reason.WORKER_LOST)])
    docker.worker(**LASTS)
    row = docker.ended(jobs["ended"])
    assert (row["reason"], row["exit_code"]) == ("exit_code", 7)
    assert printed(docker, jobs["ended"]) == b"up\n" + b"x" * 60_000 + b"last"
    assert docker.ended(jobs["asked"])["state"] == "cancelled"
    assert docker.ended(jobs["late"])["reason"] == "timeout"
    for name, reason in (
        ("leaving", "preempted"),
        ("lost", "worker_lost"),
        ("broken", "worker_lost"),
    ):
        docker.succeeds(jobs[name])
        assert docker.reasons(jobs[name]) == [reason, "succeeded"]
    assert printed(docker, jobs["asked"]) == b"up\nasked\n"


@pytest.mark.parametrize(
    ("kind", "number"), [("process", signal.SIGUSR2), ("docker", signal.SIGKILL)]
)
def test_end_that_was_seen_counts_although_the_agent_left_before_it_could_say_so(
    tmp_path: Path, database_url: str, eventually: Eventually, kind: str, number: signal.Signals
) -> None:
    with bed(kind, tmp_path, database_url) as made, ExitStack() as held:
        first = made.worker(**LASTS)
        job = made.script(ENDS)
        made.says(job, "up")
        store, away = tmp_path / "store", tmp_path / "away"
        store.rename(away)
        store.touch()
        let_go(first, job)
        eventually(lambda: made.job(job)["phase"] == "finishing")
        # Another job's preparation waits for its owner's cache.
        for turn in first.folder.glob("caches/.turns/*"):
            flock(held.enter_context(turn.open()), LOCK_EX)
        waits = made.script("print('later')", max_losses=1)
        eventually(lambda: made.job(waits)["phase"] == "preparing")
        first.leave(number)
        held.close()
        store.unlink()
        away.rename(store)
        made.worker(**LASTS)
        # The container is still there, and no longer needed.
        assert not containers_of(made.token)
        assert (made.ended(job)["reason"], made.job(job)["exit_code"]) == ("exit_code", 7)
        assert printed(made, job) == b"up\n" + b"x" * 60_000 + b"last"
        made.succeeds(waits)
        # Only an agent that still can say so gives it back free of charge.
        given_back = "drained" if number == signal.SIGUSR2 else "worker_lost"
        assert made.reasons(waits) == [given_back, "succeeded"]


@pytest.mark.parametrize("kind", ["process", "docker"])
def test_five_jobs_go_on_after_a_kill_and_after_a_hand_over(
    tmp_path: Path, database_url: str, eventually: Eventually, kind: str
) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "WORD").write_text("hush-hush")
    keeps = {**LASTS, "secrets_dir": tmp_path / "secrets"}
    with bed(kind, tmp_path, database_url) as made:
        first = made.worker(**keeps)
        secret = made.script(COUNTS + "print(os.environ['WORD'])", secrets=["WORD"])
        jobs = [secret, *(made.script(COUNTS) for _ in range(4))]
        for job in jobs:
            made.says(job, "turn 5\n")
        first.kill()
        second = made.worker(**keeps)
        for job in jobs:
            says_more(made, job, eventually)
        before = lease(made, secret)["expires_at"]
        assert second.leave(signal.SIGUSR2) == 0
        assert lease(made, secret)["expires_at"] > before
        third = made.worker(**keeps)
        assert third.output.count("job_adopted") == 5
        for job in jobs:
            let_go(third, job)
        for job in jobs:
            made.succeeds(job)
            assert made.reasons(job) == ["succeeded"]
            count = int(made.artifacts(job)["turns"])
            last = [b"*" * len("hush-hush") + b"\n"] if job == secret else []
            turns = [b"turn %d\n" % n for n in range(count)]
            assert printed(made, job) == b"".join(turns + last)


def test_process_that_ends_without_an_agent_counts_unless_it_was_stopped_for_want_of_one(
    process: Bed, eventually: Eventually
) -> None:
    first = process.worker(**LASTS)
    ended = process.script(ENDS)
    process.says(ended, "up")
    first.kill()
    let_go(first, ended)
    eventually(lambda: not processes_below([str(first.folder)]))
    # Its jobs wait for the next agent for a lease less a heartbeat.
    second = process.worker(lease_ttl_s=6, heartbeat_s=3)
    assert (process.ended(ended)["reason"], process.job(ended)["exit_code"]) == ("exit_code", 7)
    assert printed(process, ended) == b"up\n" + b"x" * 60_000 + b"last"
    stopped = process.script(LEAVES, max_losses=1)
    process.says(stopped, "up")
    let_go(second, stopped)
    second.kill()
    eventually(lambda: not processes_below([str(second.folder)]))
    process.worker(**LASTS)
    process.succeeds(stopped)
    assert process.reasons(stopped) == ["worker_lost", "succeeded"]


def running(made: Bed) -> list[str]:
    """Return the bed's running containers."""
    up = subprocess.run(["docker", "ps", "--format", "{{.Names}}"], capture_output=True, check=True)
    return sorted(set(up.stdout.decode().split()) & set(containers_of(made.token)))
