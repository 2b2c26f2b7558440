"""Workers whose machine is taken away: which work a job loses, and which it never loses."""

from __future__ import annotations

import json
import re
import signal
import threading
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from forge_client.cli.admin.worker import unwarned
from forge_schema.model.worker import WorkerInfo
from forge_schema.read.reports import Reports
from support.cloud.clouds import FakeAws, serving
from support.store.storage import CREDENTIALS, drop, moto_server, new_bucket, proxy, use_credentials
from support.workers.asked import asked
from support.workers.digits import checkpoints, train, trained
from support.workers.worker import Bed, Worker, bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

    from forge_schema.database.pool import Row
    from support.waiting import Eventually

# Counts its runs. Asked to leave, it exits with 0 as if it had finished; only the last run has.
TEN_TIMES = """
import os, pathlib, signal, sys
state = pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"], "state")
runs = int(state.read_text()) if state.exists() else 0
def leave(*_):
    state.write_text(str(runs + 1))
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("run", runs, flush=True)
while runs < 10:
    signal.pause()
"""
# Below, code that a signal may interrupt never prints: a handler must not print during a print.
# Refuses to leave, and writes its state again and again.
STUBBORN = """
import os, pathlib, signal, threading
signal.signal(signal.SIGTERM, lambda *_: print("no", flush=True))
state = pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"], "state")
os.write(1, b"up\\n")
for turn in range(10**6):
    state.with_name("new").write_text(str(turn))
    state.with_name("new").rename(state)
    threading.Event().wait(0.05)
"""
# Saves its state at the signal that it chose, and says whether the notice file was there by then.
BY_USR1 = """
import os, pathlib, signal, sys
def leave(*_):
    pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"], "state").write_text("x" * 100_000)
    print("asked", pathlib.Path(os.environ["FORGE_PREEMPT_FILE"]).exists(), flush=True)
    sys.exit(3)
signal.signal(signal.SIGUSR1, leave)
signal.signal(signal.SIGTERM, lambda *_: print("not so", flush=True))
os.write(1, b"up\\n")
while True:
    signal.pause()
"""
# Has a state from the start, ends once told to, and prints a line for each signal.
SETTLED = """
import os, pathlib, signal, threading
signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"], "state").write_text("first")
os.write(1, b"up\\n")
while not pathlib.Path("go").exists():
    threading.Event().wait(0.05)
print("notice", pathlib.Path(os.environ["FORGE_PREEMPT_FILE"]).exists(), flush=True)
"""


@contextmanager
def aws() -> Iterator[FakeAws]:
    cloud = FakeAws()
    with serving(cloud):
        yield cloud


def on(cloud: FakeAws) -> dict[str, Any]:
    """Return the settings of a worker on a machine of that cloud."""
    return {"spot": "aws", "spot_url": cloud.url}


def lost_time(made: Bed, job: int) -> list[Row]:
    """Return a job's rows in the report, in order."""
    rows = [row for row in Reports(made.database).rows("lost_time") if row["job_id"] == job]
    return sorted(rows, key=lambda row: int(row["attempt"]))


def epochs_of(made: Bed, job: int, attempt: int) -> list[int]:
    said = made.log(job, attempt).decode()
    return [int(number) for number in re.findall(r"^epoch (\d+)/", said, re.MULTILINE)]


def charged(made: Bed, job: int) -> tuple[int, int, int]:
    """Return the failures, losses and preemptions of a running job."""
    with made.database.connection() as connection:
        asked = "SELECT failures, losses, preemptions FROM lease WHERE job_id = %s"
        (row,) = connection.execute(asked, [job]).fetchall()
    return row["failures"], row["losses"], row["preemptions"]


def test_machine_whose_metadata_service_refuses_is_shown_until_it_answers(
    tmp_path: Path, database_url: str, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    with aws() as cloud, bed("process", tmp_path, database_url) as made:

        def shown() -> str:
            (row,) = made.registry.workers()
            return unwarned(WorkerInfo.model_validate(row))

        with monkeypatch.context() as patched:
            patched.setattr(cloud, "answer", lambda _: (403, "", {}))
            made.worker(**on(cloud))
            why = "the metadata service of aws fails: /latest/api/token: 403"
            eventually(lambda: shown() == f" (no preemption notices: {why})")
            eventually(lambda: f"cannot be seen: {why}" in asked(made, "--status").stdout)
        # The worker takes jobs all the same.
        made.succeeds(made.script("print('done')"))
        eventually(lambda: shown() == "")
        eventually(lambda: "cannot be seen" not in asked(made, "--status").stdout)


@pytest.mark.parametrize("kind", ["process", "docker"])
def test_training_loses_no_epoch_to_a_notice_of_aws(
    kind: str, tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with aws() as cloud, bed(kind, tmp_path, database_url) as made:
        first = made.worker("first", **on(cloud))
        job = train(made, epochs=24, seconds_per_epoch=0.3, max_failures=0, max_losses=0)
        eventually(lambda: len(checkpoints(made, job)) >= 2)
        cloud.interrupt(in_s=100)
        assert cloud.action is not None
        deadline = datetime.fromisoformat(cloud.action["time"])
        second = made.worker("second")
        assert first.process.wait(120) == 0
        made.succeeds(job)
        # The same training without an interruption.
        undisturbed = train(made, epochs=24)
        made.succeeds(undisturbed)

        assert made.reasons(job) == ["preempted", "succeeded"]
        attempts = made.jobs.attempts(job)
        assert [row["worker"] for row in attempts] == [first.name, second.name]
        assert attempts[0]["finished_at"] < deadline
        assert attempts[0]["detail"] == "aws is taking the machine back"
        done = epochs_of(made, job, 1)
        # Every epoch was trained once: the last checkpoint was stored within the notice.
        assert done + epochs_of(made, job, 2) == list(range(1, 25))
        result, weights = trained(made, job)
        assert result["resumed_from"] == done[-1]
        for name, values in trained(made, undisturbed)[1].items():
            np.testing.assert_array_equal(weights[name], values)

        (row,) = lost_time(made, job)
        assert (row["reason"], row["next_attempt"]) == ("preempted", 2)
        assert row["checkpoint_at"] <= attempts[0]["finished_at"]
        assert row["lost_s"] == row["again_s"] + row["waited_s"] + row["restored_s"]
        gone = attempts[1]["started_at"] - row["checkpoint_at"]
        assert row["lost_s"] == pytest.approx(gone.total_seconds(), abs=0.001)
        states = {one["name"]: one["status"] for one in made.registry.workers()}
        assert states[first.name] == "offline"


def test_a_job_that_is_preempted_ten_times_never_fails_and_goes_first(
    process: Bed,
) -> None:
    process.worker(max_jobs=1, heartbeat_s=60, lease_ttl_s=240)
    job = process.script(TEN_TIMES)
    process.says(job, "run 0")
    waiting = [process.script("print('at last')") for _ in range(2)]
    for run in range(10):
        process.says(job, f"run {run}\n")
        assert charged(process, job) == (0, 0, run)
        assert process.queue.preempt(job)
    process.succeeds(job)
    assert process.reasons(job) == ["preempted"] * 10 + ["succeeded"]
    assert process.log(job).decode().split() == [
        word for n in range(11) for word in ("run", str(n))
    ]
    ended = process.job(job)["finished_at"]
    for other in waiting:
        process.succeeds(other)
        assert process.jobs.attempts(other)[0]["claimed_at"] >= ended - timedelta(seconds=1)


def test_job_that_will_not_go_is_killed_in_time_and_one_may_choose_its_signal(
    process: Bed,
) -> None:
    worker = process.worker(term_notice_s=20, heartbeat_s=60, lease_ttl_s=240)
    stubborn = process.script(STUBBORN, grace_s=3000)
    chosen = process.script(BY_USR1, preempt_signal="SIGUSR1")
    for job in (stubborn, chosen):
        process.says(job, "up")
    worker.send(signal.SIGTERM)
    # A second signal neither shortens nor extends anything.
    worker.send(signal.SIGTERM)
    assert worker.process.wait(120) == 0
    ends = {job: process.jobs.attempts(job)[0] for job in (stubborn, chosen)}
    assert [end["reason"] for end in ends.values()] == ["preempted", "preempted"]
    assert [end["exit_code"] for end in ends.values()] == [137, 3]
    assert process.log(chosen) == b"up\nasked True\n"
    assert process.log(stubborn).startswith(b"up\nno\n")
    for job, end in ends.items():
        (row,) = lost_time(process, job)
        # The job's last state was stored after it exited, and before it was given back.
        assert row["checkpoint_at"] is not None
        assert end["started_at"] < row["checkpoint_at"] <= end["finished_at"]
        assert (row["next_attempt"], row["waited_s"]) == (None, None)
        assert process.job(job)["state"] == "ready"
        process.queue.cancel(job)


def test_upload_that_hangs_is_given_up_and_the_checkpoint_before_it_counts(
    tmp_path: Path, database_url: str, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_credentials(monkeypatch)
    hangs, over = threading.Event(), threading.Event()

    def fault(handler: BaseHTTPRequestHandler, _: bytes) -> bool:
        if not hangs.is_set() or over.is_set() or "checkpoint" not in handler.path:
            return False
        over.wait()
        return drop(handler)

    with moto_server() as endpoint, new_bucket(endpoint) as bucket, proxy(endpoint) as between:
        between.fault = fault
        store_url = bucket.url(between.url)
        with bed("process", tmp_path, database_url, store_url, CREDENTIALS) as made:
            worker = made.worker("first", term_notice_s=20, heartbeat_s=60, lease_ttl_s=240)
            job = made.script(BY_USR1, preempt_signal="SIGUSR1", checkpoint_interval_s=0.2)
            stored = made.script(SETTLED, checkpoint_interval_s=0.2)
            made.says(job, "up")
            eventually(lambda: checkpoints(made, stored))
            hangs.set()
            try:
                worker.send(signal.SIGTERM)
                assert worker.process.wait(120) == 0
                (end,) = made.jobs.attempts(job)
                assert end["reason"] == "preempted"
                assert end["detail"].endswith("time was up before all was stored")
                assert checkpoints(made, job) == []
                # The log, which is small, was stored before.
                assert made.log(job) == b"up\nasked True\n"
                assert [made.job(one)["state"] for one in (job, stored)] == ["ready", "ready"]
                assert len(checkpoints(made, stored)) == 1
            finally:
                over.set()
            for one in (job, stored):
                made.queue.cancel(one)
            # The next start finds nothing still running, and removes what is left.
            made.worker("first")


def test_recommendation_stores_at_once_and_leaves_the_job_alone(
    process: Bed, eventually: Eventually
) -> None:
    with aws() as cloud:
        worker = process.worker(**on(cloud))
        job = process.script(SETTLED, checkpoint_interval_s=3600)
        process.says(job, "up")
        (state,) = worker.folder.glob("jobs/*/checkpoint/state")
        state.write_text("second")
        cloud.recommended = True
        eventually(lambda: stored_state(process, job) == b"second")
        eventually(lambda: constrained(process, worker))
        waiting = process.script("print('elsewhere')")
        let_go(worker)
        process.succeeds(job)
        assert process.log(job) == b"up\nnotice False\n"
        assert process.job(waiting)["state"] == "ready"
        assert worker.running
        process.worker("two")
        process.succeeds(waiting)
        # Idle, it leaves as soon as the machine really goes.
        cloud.interrupt(in_s=100)
        assert worker.process.wait(120) == 0


def stored_state(made: Bed, job: int) -> bytes:
    """Return the file `state` of a job's newest checkpoint, b"" where there is none."""
    if not (rows := checkpoints(made, job)):
        return b""
    manifest = json.loads(made.store.get(max(rows, key=lambda row: int(row["number"]))["key"]))
    return made.store.get(manifest["files"][0]["key"])


def constrained(made: Bed, worker: Worker) -> bool:
    (row,) = [one for one in made.registry.workers() if one["name"] == worker.name]
    return bool(row["status"] == "constrained")


def let_go(worker: Worker) -> None:
    for folder in worker.folder.glob("jobs/*/work"):
        (folder / "go").touch()
