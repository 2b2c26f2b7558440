"""`forge up`: the whole system on one machine, through its commands."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest
from forge_client import Client, JobStatus
from support.command import Command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.waiting import Eventually

START_S = 120
TRAIN = """
import json, os, sys, threading
from pathlib import Path
done = Path(os.environ["FORGE_CHECKPOINT_DIR"], "done")
metrics = open(os.environ["FORGE_METRICS_FILE"], "a")
start = int(done.read_text()) if done.exists() else 0
gate, pause = Path(sys.argv[1]), threading.Event()
for epoch in range(start + 1, 5):
    while epoch == 3 and not gate.exists():
        pause.wait(0.02)
    print("epoch", epoch, "of attempt", os.environ["FORGE_ATTEMPT"], flush=True)
    done.write_text(str(epoch))
    metrics.write(json.dumps({"step": epoch, "total": 4}) + "\\n")
    metrics.flush()
Path(os.environ["FORGE_OUTPUT_DIR"], "model.bin").write_bytes(bytes(range(256)) * 40)
"""


@pytest.fixture
def forge(forge: Command) -> Iterator[Command]:
    """The command, with its `forge up` in a folder of the test's own."""
    # Not pytest's tmp_path: each run of pytest closes the folder above it to the other user as
    # whom root has to run Postgres.
    folder = tempfile.mkdtemp(prefix="forge-up-")
    forge.env.update(FORGE_DIR=folder, FORGE_RUNNER="process")
    yield forge
    for said in Path(folder).glob("logs/*"):
        sys.stderr.write(f"{said.name}:\n{said.read_text()}")  # shown where the test fails
    shutil.rmtree(folder)


@contextmanager
def up(forge: Command, eventually: Eventually) -> Iterator[subprocess.Popen[str]]:
    """Run `forge up` until the block ends."""
    connection = Path(forge.env["FORGE_DIR"]) / "connection.json"

    def announced(process: subprocess.Popen[str]) -> bool:
        return connection.exists() and json.loads(connection.read_text())["pid"] == process.pid

    with forge.started("up", "--cpus", "4") as process:
        try:
            eventually(lambda: announced(process) or process.poll() is not None, timeout=START_S)
            assert process.poll() is None, process.communicate()
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired, ValueError):
                sys.stderr.write(f"forge up: {process.communicate(timeout=60)[1]}\n")


@pytest.fixture
def running(forge: Command, eventually: Eventually) -> Iterator[subprocess.Popen[str]]:
    """A running `forge up`."""
    with up(forge, eventually) as process:
        yield process


@pytest.fixture
def training(project: Path) -> Path:
    """A project that trains four epochs, and waits for a file before the third."""
    (project / "train.py").write_text(TRAIN, encoding="utf-8")
    (project / "forge.toml").write_text("checkpoint_interval = 0.2\n", encoding="utf-8")
    return project


def submitted(forge: Command, folder: Path, *words: str | Path, **options: str) -> str:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    done = forge("submit", folder, *flags, "--", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def answer(forge: Command, *arguments: str | Path) -> Any:  # noqa: ANN401  JSON has no narrower type
    """Return what a command answers as JSON."""
    done = forge(*arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def status(forge: Command, job: str) -> JobStatus:
    """Return how a job stands; by the SDK, which is quicker to ask again and again."""
    with Client(up_dir=forge.env["FORGE_DIR"]) as client:
        return client.job(int(job)).status()


def log(forge: Command, job: str) -> str:
    """Return a job's output so far."""
    with Client(up_dir=forge.env["FORGE_DIR"]) as client:
        return "".join(client.job(int(job)).logs())


def ours(forge: Command) -> list[str]:
    """Return the command lines of every process that names the test's own folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "pid"]):
        line = " ".join(process.info["cmdline"] or [])
        with suppress(psutil.Error):
            named = forge.env["FORGE_DIR"] in line or (
                any(module in line for module in ("forge_worker", "forge_functions"))
                and forge.env["FORGE_DIR"] in process.environ().get("FORGE_STORE_URL", "")
            )
            if named:
                found.append(line)
    return found


def test_a_job_is_submitted_followed_and_fetched(
    forge: Command, running: subprocess.Popen[str], training: Path, tmp_path: Path,
    eventually: Eventually,
) -> None:  # fmt: skip
    gate = tmp_path / "gate"
    job = submitted(forge, training, "python", "train.py", gate, name="digits")
    eventually(lambda: status(forge, job).progress == 0.5)
    (row,) = answer(forge, "ps")
    assert (row["name"], row["state"], row["owner"]) == ("digits", "running", "ann")
    with forge.started("logs", "-f", job) as follower:
        gate.touch()
        out, told = follower.communicate(timeout=60)
    assert out == "".join(f"epoch {n} of attempt 1\n" for n in range(1, 5))
    assert told.splitlines()[-1] == f"job {job} 'digits' succeeded"
    assert follower.returncode == 0
    assert forge("logs", job).stdout == out
    (file,) = answer(forge, "artifacts", job, "--to", tmp_path / "to")
    data = (tmp_path / "to" / "model.bin").read_bytes()
    assert data == bytes(range(256)) * 40
    assert (file["path"], file["sha256"]) == ("model.bin", hashlib.sha256(data).hexdigest())
    (attempt,) = answer(forge, "report", "attempt_history")
    assert (attempt["reason"], attempt["accepted"]) == ("succeeded", True)
    assert forge("doctor").returncode == 0
    assert running.poll() is None


def test_its_server_is_there_and_comes_back_when_it_falls_over(
    forge: Command, running: subprocess.Popen[str], eventually: Eventually
) -> None:
    del running
    folder = Path(forge.env["FORGE_DIR"])
    url = json.loads((folder / "connection.json").read_text())["url"]

    def answers() -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{url}/openapi.json").is_success
        return False

    assert answers()
    first = int((folder / "server" / "pid").read_text())
    os.kill(first, signal.SIGKILL)
    eventually(lambda: int((folder / "server" / "pid").read_text()) != first)
    eventually(answers)


def test_waiting_exits_with_the_jobs_own_code_and_passes_its_output_on(
    forge: Command, running: subprocess.Popen[str], project: Path
) -> None:
    del running
    script = (
        "import os, sys; os.write(1, bytes(range(256))); print(os.environ['WORD']); sys.exit(7)"
    )
    options = ["--max-failures", "0", "--wait", "--env", "WORD"]
    done = forge("submit", project, *options, "--", "python", "-c", script, WORD="from here")
    assert done.returncode == 7
    printed = done.stdout.encode(errors="surrogateescape")
    # Text mode reads the carriage return as a line's end.
    assert printed == bytes(range(256)).replace(b"\r", b"\n") + b"from here\n"
    assert "exit_code (exit code 7)" in done.stderr
    assert "packed 1 file" in done.stderr
    again = forge("submit", project, *options, "--", "python", "-c", "", WORD="")
    assert again.returncode == 0
    assert "already there" in again.stderr


def test_a_detached_wait_leaves_the_job_running(
    forge: Command, running: subprocess.Popen[str], training: Path, tmp_path: Path,
    eventually: Eventually,
) -> None:  # fmt: skip
    del running
    gate = tmp_path / "gate"
    words = ("--wait", "--", "python", "train.py", gate)
    with forge.started("submit", training, *words) as waiter:
        assert waiter.stdout is not None
        assert waiter.stdout.readline() == "epoch 1 of attempt 1\n"
        waiter.send_signal(signal.SIGINT)
        _, told = waiter.communicate(timeout=30)
    assert waiter.returncode == 130
    assert "Traceback" not in told
    assert "`forge logs -f 1` comes back" in told
    assert status(forge, "1").state == "running"
    assert forge("cancel", "1").returncode == 0
    eventually(lambda: status(forge, "1").state == "cancelled", timeout=60)


def test_a_second_forge_up_on_the_folder_is_refused(
    forge: Command, running: subprocess.Popen[str]
) -> None:
    done = forge("up")
    assert done.returncode == 4
    assert f"process {running.pid}" in done.stderr
    assert "forge down" in done.stderr
    assert forge("ps").returncode == 0


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_it_leaves_nothing_running_and_the_next_one_finds_the_old_jobs(
    forge: Command, project: Path, eventually: Eventually, signum: signal.Signals
) -> None:
    with up(forge, eventually) as process:
        assert forge("submit", project, "--wait", "--", "python", "train.py").returncode == 0
        assert len(ours(forge)) >= 2
        process.send_signal(signum)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in told
    assert ours(forge) == []
    assert forge("ps").returncode == 5
    with up(forge, eventually):
        assert forge("logs", "1").stdout == "hello\n"
        assert status(forge, "1").state == "succeeded"
        assert submitted(forge, project, "true") == "2"


def test_a_stopped_forge_up_gives_jobs_back_and_the_next_one_resumes_them(
    forge: Command, training: Path, tmp_path: Path, eventually: Eventually
) -> None:
    gate = tmp_path / "gate"
    with up(forge, eventually):
        job = submitted(forge, training, "python", "train.py", gate)
        eventually(lambda: "epoch 2" in log(forge, job))
        down = forge("down")
        assert down.returncode == 0, down.stderr
    assert ours(forge) == []
    gate.touch()
    with up(forge, eventually):
        assert forge("logs", "-f", job).stdout.splitlines() == [
            f"epoch {n} of attempt {1 if n < 3 else 2}" for n in range(1, 5)
        ]
        assert status(forge, job).state == "succeeded"


def test_ctrl_c_lets_running_jobs_end(
    forge: Command, training: Path, tmp_path: Path, eventually: Eventually
) -> None:
    gate = tmp_path / "gate"
    with up(forge, eventually) as process:
        job = submitted(forge, training, "python", "train.py", gate)
        eventually(lambda: "epoch 2" in log(forge, job))
        process.send_signal(signal.SIGINT)
        told = process.stderr
        assert told is not None
        eventually(lambda: "waiting for running jobs" in told.readline())
        assert status(forge, job).state == "running"
        gate.touch()
        process.communicate(timeout=60)
    with up(forge, eventually):
        assert status(forge, job).state == "succeeded"
        assert status(forge, job).attempt == 1


def test_a_worker_that_falls_over_is_started_again(
    forge: Command, running: subprocess.Popen[str], training: Path, tmp_path: Path,
    eventually: Eventually,
) -> None:  # fmt: skip
    gate = tmp_path / "gate"
    job = submitted(forge, training, "python", "train.py", gate)
    eventually(lambda: "epoch 2" in log(forge, job))
    (pid_file,) = Path(forge.env["FORGE_DIR"]).glob("workers/*/pid")
    first = int(pid_file.read_text(encoding="utf-8"))
    os.kill(first, signal.SIGKILL)
    gate.touch()
    assert forge("logs", "-f", job).returncode == 0
    assert status(forge, job).state == "succeeded"
    assert int(pid_file.read_text(encoding="utf-8")) != first
    running.terminate()
    assert "fell over with status -9" in running.communicate(timeout=60)[1]


def test_after_a_kill_the_next_one_clears_up_and_goes_on(
    forge: Command, training: Path, tmp_path: Path, eventually: Eventually
) -> None:
    gate = tmp_path / "gate"
    with up(forge, eventually) as process:
        job = submitted(forge, training, "python", "train.py", gate)
        eventually(lambda: "epoch 2" in log(forge, job))
        process.kill()
        process.communicate(timeout=30)
    left = ours(forge)
    assert left
    gate.touch()
    with up(forge, eventually):
        assert forge("logs", "-f", job).returncode == 0
        assert status(forge, job).state == "succeeded"
        assert len(ours(forge)) <= len(left) + 1
    assert ours(forge) == []


def test_detached_it_is_found_from_anywhere_and_ended_by_down(
    forge: Command, project: Path, eventually: Eventually
) -> None:
    folder = forge.env.pop("FORGE_DIR")
    started = forge("up", "--detach", "--dir", folder)
    try:
        assert started.returncode == 0, started.stderr
        assert "Forge is up" in started.stderr
        done = forge("submit", project, "--wait", "--", "python", "train.py")
        assert done.stdout == "hello\n"
        again = forge("up", "--detach", "--dir", folder)
        assert again.returncode == 4
        assert "already" in again.stderr
    finally:
        assert forge("down").returncode == 0
    forge.env["FORGE_DIR"] = folder
    eventually(lambda: not ours(forge))
    assert not Path(folder, "connection.json").exists()


def test_a_drained_worker_stays_and_takes_jobs_again_when_undone(
    forge: Command, running: subprocess.Popen[str], project: Path, eventually: Eventually
) -> None:
    del running
    (worker,) = answer(forge, "workers")
    assert forge("drain", worker["name"]).returncode == 0

    def standing() -> tuple[str, str | None]:
        (row,) = answer(forge, "workers")
        return row["status"], row["command"]

    eventually(lambda: standing() == ("draining", "drain"), timeout=60)
    job = submitted(forge, project, "python", "train.py")
    assert status(forge, job).state == "ready"
    assert forge("drain", worker["name"], "--undo").returncode == 0
    eventually(lambda: status(forge, job).state == "succeeded", timeout=60)


def test_two_of_them_on_one_machine_leave_each_others_jobs_alone(
    forge: Command, running: subprocess.Popen[str], training: Path, tmp_path: Path,
    eventually: Eventually,
) -> None:  # fmt: skip
    del running
    gate = tmp_path / "gate"
    job = submitted(forge, training, "python", "train.py", gate)
    eventually(lambda: "epoch 2" in log(forge, job))
    with tempfile.TemporaryDirectory(prefix="forge-up-") as folder:
        other = replace(forge, env={**forge.env, "FORGE_DIR": folder})
        with up(other, eventually):
            assert forge("ps").returncode == 0
            assert other("submit", training, "--wait", "--", "true").returncode == 0
    gate.touch()
    assert forge("logs", "-f", job).returncode == 0
    assert (status(forge, job).state, status(forge, job).attempt) == ("succeeded", 1)
