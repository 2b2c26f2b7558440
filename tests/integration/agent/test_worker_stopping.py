"""Jobs and workers that are asked to stop: cancel, preempt, drain, signals."""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING, Any

from forge_schema.database.connections import LISTEN
from forge_schema.explain import explain
from forge_schema.model.explanation import Chance
from forge_schema.model.states import Command
from forge_schema.read.audit import Audit
from forge_worker.main import EXIT_IDLE
from support.workers.worker import Bed, Worker

if TYPE_CHECKING:
    from pathlib import Path

    from support.waiting import Eventually

# Saves its state when asked to stop; finds it again when it is run once more.
SAVES = """
import os, pathlib, signal, sys
state = pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"], "state")
notice = pathlib.Path(os.environ["FORGE_PREEMPT_FILE"])
if state.exists():
    print("found", state.read_text(), notice.exists(), flush=True)
    sys.exit()
def leave(*_):
    state.write_text("saved")
    print("notice", notice.exists(), flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, leave)
print("up", flush=True)
while True:
    signal.pause()
"""
# Succeeds once the file `go` is in its work folder.
WAITS = """
import pathlib, threading
print("up", flush=True)
while not pathlib.Path("go").exists():
    threading.Event().wait(0.05)
print("bye", flush=True)
"""
# Succeeds, or so it seems, when its folder is gone.
ENDS_WITHOUT_ITS_FOLDER = """
import os, pathlib, threading
print("up", flush=True)
while pathlib.Path(os.environ["FORGE_OUTPUT_DIR"]).exists():
    threading.Event().wait(0.02)
"""
# Anything that arrives without a hint arrives after the test.
LONG: dict[str, Any] = {"heartbeat_s": 1000, "lease_ttl_s": 4000, "poll_s": 1000}


def let_go(worker: Worker) -> None:
    """Let the jobs of a worker that run WAITS end."""
    for folder in worker.folder.glob("jobs/*/work"):
        (folder / "go").touch()


def worker_row(made: Bed, worker: Worker) -> dict[str, Any]:
    return next(row for row in made.registry.workers() if row["name"] == worker.name)


def ask(made: Bed, worker: Worker, command: Command | None) -> None:
    row = worker_row(made, worker)
    assert isinstance(row["id"], int)
    made.registry.command(row["id"], command)


def test_cancel_reaches_a_running_job_at_once(process: Bed) -> None:
    process.worker(**LONG)
    job = process.script(SAVES)
    process.says(job, "up")
    process.queue.cancel(job)
    assert process.ended(job)["state"] == "cancelled"
    assert process.reasons(job) == ["cancelled"]


def test_cancel_whose_hint_is_lost_comes_with_the_next_renewal(process: Bed) -> None:
    process.worker()
    job = process.script(SAVES)
    process.says(job, "up")
    with process.database.connection() as connection:
        connection.execute("UPDATE lease SET asked = 'cancelled' WHERE job_id = %s", [job])
    assert process.ended(job)["state"] == "cancelled"


def test_work_submitted_without_a_hint_is_found_by_looking(
    process: Bed, eventually: Eventually
) -> None:
    process.worker()
    with process.database.connection() as connection:
        ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = %s"
        assert eventually(lambda: connection.execute(ends, [LISTEN]).fetchall())
    process.succeeds(process.script("print('found')"))


def test_preempted_job_is_given_back_and_goes_on_from_its_checkpoint(process: Bed) -> None:
    process.worker(**LONG)
    job = process.script(SAVES, max_preemptions=1)
    process.says(job, "up")
    assert process.queue.preempt(job)
    process.succeeds(job)
    assert process.reasons(job) == ["preempted", "succeeded"]
    assert process.log(job) == b"up\nnotice True\nfound saved False\n"


def test_drained_worker_finishes_its_job_and_stays_draining(
    process: Bed, eventually: Eventually
) -> None:
    worker = process.worker(heartbeat_s=0.5)
    running = process.script(WAITS)
    process.says(running, "up")
    ask(process, worker, Command.DRAIN)
    eventually(lambda: worker_row(process, worker)["status"] == "draining")
    waiting = process.script("print('here after all')")
    let_go(worker)
    process.succeeds(running)
    assert process.job(waiting)["state"] == "ready"
    assert worker_row(process, worker)["status"] == "draining"
    ask(process, worker, None)
    process.succeeds(waiting)


def test_drained_worker_that_is_told_to_leave_leaves(process: Bed, eventually: Eventually) -> None:
    worker = process.worker(heartbeat_s=0.5)
    ask(process, worker, Command.DRAIN)
    eventually(lambda: worker_row(process, worker)["status"] == "draining")
    assert worker.leave() == 0
    assert worker_row(process, worker)["status"] == "offline"


def test_drained_ephemeral_worker_finishes_its_job_and_leaves(
    process: Bed, eventually: Eventually
) -> None:
    worker = process.worker(ephemeral=True, **LONG)
    running = process.script(WAITS)
    process.says(running, "up")
    ask(process, worker, Command.DRAIN)
    eventually(lambda: worker_row(process, worker)["status"] == "draining")
    waiting = process.script("print('not here')")
    let_go(worker)
    assert worker.process.wait(120) == 0
    assert process.job(running)["state"] == "succeeded"
    assert process.job(waiting)["state"] == "ready"
    assert worker_row(process, worker)["status"] == "offline"


def test_stopped_worker_gives_its_job_back(process: Bed) -> None:
    worker = process.worker(**LONG)
    job = process.script(SAVES)
    process.says(job, "up")
    ask(process, worker, Command.STOP)
    assert worker.process.wait(120) == 0
    assert process.reasons(job) == ["preempted"]
    assert process.job(job)["state"] == "ready"


def test_sigterm_gives_every_job_back_with_its_last_checkpoint(both: Bed) -> None:
    worker = both.worker(**LONG)
    jobs = [both.script(SAVES) for _ in range(2)]
    for job in jobs:
        both.says(job, "up")
    assert worker.leave(signal.SIGTERM) == 0
    assert [both.job(job)["state"] for job in jobs] == ["ready", "ready"]
    assert [both.reasons(job) for job in jobs] == [["preempted"], ["preempted"]]
    assert worker_row(both, worker)["status"] == "offline"
    both.worker("two")
    for job in jobs:
        both.succeeds(job)
        assert both.log(job, attempt=2) == b"found saved False\n"


def test_a_job_that_ends_as_its_worker_is_stopped_keeps_its_result(
    process: Bed, eventually: Eventually
) -> None:
    worker = process.worker(store_patience_s=60)
    job = process.script(WAITS)
    process.says(job, "up")
    store, away = process.root / "store", process.root / "away"
    store.rename(away)
    store.touch()
    let_go(worker)
    eventually(lambda: process.job(job)["phase"] == "finishing")
    worker.send(signal.SIGTERM)
    eventually(lambda: "draining" in worker.output)
    store.unlink()
    away.rename(store)
    assert worker.process.wait(120) == 0
    assert process.job(job)["state"] == "succeeded"
    assert process.log(job) == b"up\nbye\n"


def test_sigint_drains_and_once_more_stops(process: Bed, eventually: Eventually) -> None:
    worker = process.worker(**LONG)
    job = process.script(SAVES)
    process.says(job, "up")
    worker.send(signal.SIGINT)
    eventually(lambda: "draining" in worker.output)
    waiting = process.script("print('not here')")
    assert process.job(job)["state"] == "running"
    assert worker.leave(signal.SIGINT) == 0
    assert process.reasons(job) == ["preempted"]
    assert process.job(waiting)["state"] == "ready"


def test_sigint_lets_the_running_job_end(process: Bed, eventually: Eventually) -> None:
    worker = process.worker(**LONG)
    job = process.script(WAITS)
    process.says(job, "up")
    worker.send(signal.SIGINT)
    eventually(lambda: "draining" in worker.output)
    let_go(worker)
    assert worker.process.wait(120) == 0
    assert process.job(job)["state"] == "succeeded"


def test_worker_that_drains_of_its_own_accord_says_so_at_once(
    process: Bed, eventually: Eventually
) -> None:
    worker = process.worker(**LONG)
    running = process.script(WAITS)
    process.says(running, "up")
    worker.send(signal.SIGINT)
    eventually(lambda: worker_row(process, worker)["status"] == "draining")
    row = worker_row(process, worker)
    assert row["command"] is None
    events = Audit(process.database).events(worker_id=row["id"])
    assert (events[-1]["action"], events[-1]["detail"]["to"]) == ("status_changed", "draining")
    (chance,) = explain(process.database, process.script("print('not here')")).workers
    assert (chance.chance, chance.available) == (Chance.DRAINING, False)
    assert "draining, as asked on its machine" in chance.text
    let_go(worker)
    assert worker.process.wait(120) == 0
    process.succeeds(running)


def test_idle_worker_leaves_at_once(process: Bed) -> None:
    worker = process.worker(**LONG)
    assert worker.leave() == 0
    assert worker_row(process, worker)["status"] == "offline"


def test_ephemeral_worker_leaves_after_one_job(process: Bed) -> None:
    worker = process.worker(ephemeral=True)
    jobs = [process.script("print('one')") for _ in range(3)]
    assert worker.process.wait(120) == 0
    states = sorted(process.job(job)["state"] for job in jobs)
    assert states == ["ready", "ready", "succeeded"]


def test_ephemeral_worker_leaves_after_a_failure_too(process: Bed) -> None:
    worker = process.worker(ephemeral=True)
    job = process.script("raise SystemExit(1)")
    assert worker.process.wait(120) == 0
    assert process.reasons(job) == ["exit_code"]


def test_an_idle_worker_leaves_by_itself_and_then_its_program_runs(
    process: Bed, tmp_path: Path
) -> None:
    stopped, job = tmp_path / "stopped", process.submit("true")
    line = f"sh -c 'echo $FORGE_WORKER_NAME > {stopped}'"
    worker = process.begin(exit_after_idle="1s", on_idle_exit=line)
    assert worker.process.wait(60) == EXIT_IDLE, worker.output
    process.succeeds(job)
    assert stopped.read_text().strip() == worker.name
    row = worker_row(process, worker)
    assert (row["status"], row["condition"]["left"]) == ("offline", "it was idle for 1 s")


def test_an_idle_worker_whose_program_fails_says_so_and_may_start_again(process: Bed) -> None:
    worker = process.begin(exit_after_idle=0.2, on_idle_exit="sh -c 'echo no such vm; exit 3'")
    assert worker.process.wait(60) == 1
    assert "failed: exit code 3: no such vm" in worker.output


def test_worker_whose_folder_is_removed_gives_its_jobs_back_and_leaves(both: Bed) -> None:
    worker = both.worker()
    jobs = [both.script(source) for source in (SAVES, ENDS_WITHOUT_ITS_FOLDER)]
    for job in jobs:
        both.says(job, "up")
    # In one step: what the worker writes meanwhile cannot keep it from going.
    removed = worker.folder.rename(worker.folder.with_name("removed"))
    shutil.rmtree(removed, ignore_errors=True)
    assert worker.process.wait(60) == 1
    assert "Traceback" not in worker.output
    last = worker.output.splitlines()[-2:]
    assert last[0].startswith(f"forge-worker: the folder of the worker's jobs, {worker.folder}/")
    assert "FORGE_WORKER_DIR" in last[1]
    assert [both.reasons(job) for job in jobs] == [["drained"]] * 2
    assert [both.job(job)["state"] for job in jobs] == ["ready"] * 2
    both.worker("two")
    for job in jobs:
        both.says(job, "up")
        both.queue.cancel(job)
        assert both.ended(job)["state"] == "cancelled"
