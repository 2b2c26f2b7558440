"""`forge up`: the whole system on one machine, through its commands."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest
from forge_client import Client, JobStatus
from support.client.command import Command
from support.client.own_up import in_a_folder_of_its_own, tell_logs
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

START_S = 120
# Each look opens a new connection, too costly fifty times a second.
LOOK_S = 0.2
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


@contextmanager
def up(forge: Command, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run `forge up` until the block ends."""
    connection = Path(forge.env["FORGE_DIR"]) / "connection.json"

    def announced(process: subprocess.Popen[str]) -> bool:
        return connection.exists() and json.loads(connection.read_text())["pid"] == process.pid

    with forge.started("up", "--cpus", "4", *options) as process:
        try:
            eventually(lambda: announced(process) or process.poll() is not None, timeout=START_S)
            assert process.poll() is None, process.communicate()
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired, ValueError):
                sys.stderr.write(f"forge up: {process.communicate(timeout=60)[1]}\n")


@pytest.fixture
def down(tmp_path: Path) -> Iterator[Command]:
    """The command of a user whose `forge up` is not running yet."""
    with in_a_folder_of_its_own(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def started(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Command, subprocess.Popen[str]]]:
    with in_a_folder_of_its_own(tmp_path_factory.mktemp("up")) as made, up(made) as process:
        yield made, process


@pytest.fixture
def forge(started: tuple[Command, subprocess.Popen[str]]) -> Iterator[Command]:
    """The command, with a `forge up` that several tests share, so each must leave it running."""
    yield started[0]
    tell_logs(started[0].env["FORGE_DIR"])


@pytest.fixture
def running(started: tuple[Command, subprocess.Popen[str]]) -> subprocess.Popen[str]:
    """The shared `forge up`."""
    return started[1]


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
    """Return a job's status through the SDK, which is quicker to ask repeatedly."""
    with Client(up_dir=forge.env["FORGE_DIR"]) as client:
        return client.job(int(job)).status()


def log(forge: Command, job: str) -> str:
    """Return a job's output so far."""
    with Client(up_dir=forge.env["FORGE_DIR"]) as client:
        return "".join(client.job(int(job)).logs())


def ours(forge: Command) -> list[str]:
    """Return the command lines of every process that works in the test's own folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            used = [process.cwd(), *process.cmdline(), *(one.path for one in process.open_files())]
            if any(forge.env["FORGE_DIR"] in text for text in used):
                found.append(" ".join(process.cmdline()))
    return found


def programs(forge: Command) -> list[str]:
    """Return those that are not of Postgres, which has a process for each connection."""
    return [said for said in ours(forge) if "postgres" not in said]


def noted(pid_file: Path) -> int:
    """Return the process id in a file, which also records when that process started."""
    return int(pid_file.read_text(encoding="utf-8").split()[0])


def of_job(rows: list[dict[str, Any]], job: str) -> dict[str, Any]:
    """Return the one row of a job."""
    (row,) = [row for row in rows if row["job_id"] == int(job)]
    return row


def trains(forge: Command, training: Path, gate: Path) -> str:
    """Submit a training that stops after the second epoch, and wait until it gets there."""
    job = submitted(forge, training, "python", "train.py", gate)
    eventually(lambda: "epoch 2" in log(forge, job), every=LOOK_S)
    return job


def test_a_job_is_submitted_followed_and_fetched(
    forge: Command, running: subprocess.Popen[str], training: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job = submitted(forge, training, "python", "train.py", gate, name="digits")
    eventually(lambda: status(forge, job).progress == 0.5, every=LOOK_S)
    row = of_job(answer(forge, "ps"), job)
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
    attempt = of_job(answer(forge, "report", "show", "attempt_history"), job)
    assert (attempt["reason"], attempt["accepted"]) == ("succeeded", True)
    assert forge("doctor").returncode == 0
    assert running.poll() is None


def falls_over_and_comes_back(pid_file: Path) -> None:
    """Kill a child of `forge up`, and wait for its replacement."""
    first = noted(pid_file)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: noted(pid_file) != first)


def test_its_server_is_there_and_comes_back_when_it_falls_over(forge: Command) -> None:
    folder = Path(forge.env["FORGE_DIR"])
    url = json.loads((folder / "connection.json").read_text())["url"]

    def answers() -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{url}/health", timeout=60).is_success
        return False

    assert answers()
    falls_over_and_comes_back(folder / "server" / "pid")
    eventually(answers, every=LOOK_S)


def test_its_dashboard_is_logged_in_to_by_a_link(forge: Command) -> None:
    (link,) = forge("dashboard").stdout.splitlines()
    url, _, token = link.partition("/login/link?link=")
    fresh = httpx.Limits(max_keepalive_connections=0)
    with httpx.Client(base_url=url, headers={"Origin": url}, limits=fresh, timeout=60) as browser:
        assert token in browser.get(link).text
        assert browser.post("/login", data={"link": token}).status_code == 303
        page = browser.get("/")
    assert page.status_code == 200
    assert 'action="/logout"' in page.text
    assert httpx.post(
        f"{url}/login", data={"link": token}, headers={"Origin": url}, timeout=60
    ).is_error
    assert forge("key", "list").stdout.count("forge dashboard") == 1


def test_waiting_exits_with_the_jobs_own_code_and_passes_its_output_on(
    forge: Command, project: Path
) -> None:
    script = (
        "import os, sys; os.write(1, bytes(range(256))); print(os.environ['WORD']); sys.exit(7)"
    )
    options = ["--max-failures", "0", "--wait", "--env", "WORD"]
    done = forge("submit", project, *options, "--", "python", "-c", script, WORD="from here")
    assert done.returncode == 7
    printed = done.stdout.encode(errors="surrogateescape")
    # Text mode reads the carriage return as a newline.
    assert printed == bytes(range(256)).replace(b"\r", b"\n") + b"from here\n"
    assert "failed after 1 attempt: exit code 7" in done.stderr
    assert "packed 1 file" in done.stderr
    quiet = [*options, "-o", "json"]
    again = forge("submit", project, *quiet, "--", "python", "-c", "print('seen')", WORD="")
    assert again.returncode == 0
    assert json.loads(again.stdout)["job"]["state"] == "succeeded"
    assert "seen" in again.stderr
    assert "already there" in again.stderr


def test_a_detached_wait_leaves_the_job_running(
    forge: Command, training: Path, tmp_path: Path
) -> None:
    words = ("--wait", "--", "python", "train.py", tmp_path / "gate")
    with forge.started("submit", training, *words) as waiter:
        assert waiter.stdout is not None
        assert waiter.stdout.readline() == "epoch 1 of attempt 1\n"
        waiter.send_signal(signal.SIGINT)
        _, told = waiter.communicate(timeout=60)
    assert waiter.returncode == 130
    assert "Traceback" not in told
    found = re.search(r"`forge logs -f (\d+)` follows it again", told)
    assert found is not None, told
    job = found[1]
    assert status(forge, job).state == "running"
    assert forge("cancel", job).returncode == 0
    eventually(lambda: status(forge, job).state == "cancelled", every=LOOK_S)


def test_a_second_forge_up_on_the_folder_is_refused(
    forge: Command, running: subprocess.Popen[str]
) -> None:
    done = forge("up")
    assert done.returncode == 4
    assert f"process {running.pid}" in done.stderr
    assert "forge down" in done.stderr
    assert forge("ps").returncode == 0


def test_a_worker_that_falls_over_is_started_again(
    forge: Command, running: subprocess.Popen[str], training: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job = trains(forge, training, gate)
    (pid_file,) = Path(forge.env["FORGE_DIR"]).glob("workers/*/pid")
    first = noted(pid_file)
    os.kill(first, signal.SIGKILL)
    gate.touch()
    assert forge("logs", "-f", job).returncode == 0
    assert status(forge, job).state == "succeeded"
    assert noted(pid_file) != first
    assert running.stderr is not None
    # Earlier lines may report that the server exited.
    fell = f"worker {pid_file.parent.name} exited with status -9"
    assert any(fell in line for line in running.stderr)


def test_a_drained_worker_stays_and_takes_jobs_again_when_undone(
    forge: Command, project: Path
) -> None:
    (worker,) = answer(forge, "worker", "list")
    assert forge("worker", "drain", worker["name"]).returncode == 0

    def standing() -> tuple[str, str | None]:
        (row,) = answer(forge, "worker", "list")
        return row["status"], row["command"]

    eventually(lambda: standing() == ("draining", "drain"), every=1)
    job = submitted(forge, project, "python", "train.py")
    assert status(forge, job).state == "queued"
    assert forge("worker", "drain", worker["name"], "--undo").returncode == 0
    eventually(lambda: status(forge, job).state == "succeeded", every=LOOK_S)


def test_two_of_them_on_one_machine_leave_each_others_jobs_alone(
    forge: Command, down: Command, training: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job = trains(forge, training, gate)
    with up(down):
        assert forge("ps").returncode == 0
        assert down("submit", training, "--wait", "--", "true").returncode == 0
    gate.touch()
    assert forge("logs", "-f", job).returncode == 0
    assert (status(forge, job).state, status(forge, job).attempt) == ("succeeded", 1)


def test_its_workers_run_a_job_together_unless_it_says_no(down: Command, project: Path) -> None:
    needs = {"nodes": "2", "cpus": "1", "memory": "64MiB", "disk": "10MiB"}
    flags = [f"--{name}={value}" for name, value in needs.items()]
    with up(down, "--workers", "2", "--gang-network", "none"):
        refused = down("submit", project, *flags, "--", "true")
        again = "restart 2 of them with --gang-network host (forge up --gang-network host)"
        assert again in " ".join(refused.stderr.split())
    # More than the cores of many machines: each still has the CPU that a job needs.
    with up(down, "--workers", "3", "--gang-network", "host"):
        assert down("logs", "-f", refused.stdout.strip()).returncode == 0
        assert status(down, refused.stdout.strip()).state == "succeeded"


def test_detached_it_is_found_from_anywhere_and_ended_by_down(down: Command, project: Path) -> None:
    folder = down.env.pop("FORGE_DIR")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = down("up", "--detach", "--dir", f"{folder}-not", "--port", port)
    assert failed.returncode == 4
    assert (failed.stderr.count("error:"), failed.stderr.count("hint:")) == (1, 1)
    assert f"error: something else already answers on port {port}" in failed.stderr
    assert not Path(f"{folder}-not").exists()
    started = down("up", "--detach", "--dir", folder)
    try:
        assert started.returncode == 0, started.stderr
        assert "Forge is up" in started.stderr
        # What is asked at once waits for the server and the worker, which load meanwhile.
        url = json.loads(Path(folder, "connection.json").read_text())["url"]
        assert httpx.get(f"{url}/health", timeout=START_S).status_code == 200
        assert [worker["status"] for worker in answer(down, "worker", "list")] == ["idle"]
        done = down("submit", project, "--wait", "--", "python", "train.py")
        assert done.stdout == "hello\n"
        again = down("up", "--detach", "--dir", folder)
        assert again.returncode == 4
        assert "already" in again.stderr
    finally:
        assert down("down").returncode == 0
        down.env["FORGE_DIR"] = folder
    eventually(lambda: not ours(down), every=LOOK_S)
    assert not Path(folder, "connection.json").exists()


def leaves_nothing(process: subprocess.Popen[str], forge: Command) -> None:
    """Check that a stopped `forge up` leaves nothing behind."""
    _, told = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in told
    assert ours(forge) == []
    assert forge("ps").returncode == 5


def test_each_way_to_end_leaves_nothing_running_and_the_next_one_goes_on(
    down: Command, project: Path, training: Path, tmp_path: Path
) -> None:
    gates = [tmp_path / name for name in ("interrupted", "killed", "stopped")]

    # Ctrl-C lets running jobs finish.
    with up(down) as process:
        hello = submitted(down, project, "echo", "hello")
        interrupted = trains(down, training, gates[0])
        assert len(ours(down)) >= 2
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert any("waiting for running jobs" in line for line in process.stderr)
        assert status(down, interrupted).state == "running"
        falls_over_and_comes_back(Path(down.env["FORGE_DIR"], "server", "pid"))
        gates[0].touch()
        leaves_nothing(process, down)

    # The next `forge up` finds the old jobs; it is killed.
    with up(down) as process:
        assert down("logs", hello).stdout == "hello\n"
        done = status(down, interrupted)
        assert (done.state, done.attempt) == ("succeeded", 1)
        killed = trains(down, training, gates[1])
        process.kill()
        process.communicate(timeout=60)
    left = programs(down)
    assert left
    gates[1].touch()

    # The next one cleans up and continues; `forge down` makes it give its job back.
    with up(down):
        assert down("logs", "-f", killed).returncode == 0
        assert status(down, killed).state == "succeeded"
        assert len(programs(down)) <= len(left) + 1
        stopped = trains(down, training, gates[2])
        said = down("down")
        assert said.returncode == 0, said.stderr
    assert ours(down) == []
    gates[2].touch()

    # The next one resumes it.
    with up(down) as process:
        assert down("logs", "-f", stopped).stdout.splitlines() == [
            f"epoch {n} of attempt {1 if n < 3 else 2}" for n in range(1, 5)
        ]
        assert status(down, stopped).state == "succeeded"
        process.terminate()
        leaves_nothing(process, down)


def test_down_ends_what_a_killed_one_left(down: Command, training: Path, tmp_path: Path) -> None:
    with up(down) as process:
        job = trains(down, training, tmp_path / "gate")
        process.kill()
        process.communicate(timeout=30)
    assert ours(down)
    said = down("down")
    assert said.returncode == 0, said.stderr
    assert ours(down) == []
    assert down("down").returncode == 5
    with up(down):
        (tmp_path / "gate").touch()
        assert down("logs", "-f", job).returncode == 0
        assert status(down, job).attempt == 2


@contextmanager
def worker(forge: Command, **env: str) -> Iterator[subprocess.Popen[str]]:
    """Run `forge-worker` without arguments as the same user."""
    process = subprocess.Popen(
        [sys.executable, "-m", "forge_worker.main"],
        env={**os.environ, **forge.env, **env},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(ValueError):
            sys.stderr.write(f"forge-worker: {process.communicate(timeout=60)[1]}\n")


def test_a_worker_without_arguments_joins_the_forge_up_that_runs(
    forge: Command, project: Path
) -> None:
    before = {row["name"] for row in json.loads(forge("worker", "list", "-o", "json").stdout)}
    with worker(forge, FORGE_LABELS="place=joined"):
        done = forge("submit", project, "--wait", "--label", "place=joined", "--", "python", "-V")
        assert done.returncode == 0, done.stderr
        after = {row["name"] for row in json.loads(forge("worker", "list", "-o", "json").stdout)}
        (joined,) = after - before
    folder = Path(forge.env["FORGE_DIR"], "workers", "joined-1")
    assert (folder / "name").read_text().strip() == joined


def test_a_worker_without_arguments_says_what_to_type_where_no_forge_up_runs(
    down: Command,
) -> None:
    with worker(down) as alone:
        assert alone.wait(60) == 2
        assert alone.stderr
        said = alone.stderr.read()
    assert "no `forge up` is running here: start one, or give --url and --token" in said
