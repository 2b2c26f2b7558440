"""What is particular to jobs that run as processes."""

from __future__ import annotations

import gc
import os
import signal
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
import pytest
from forge_worker.runners.process import shims
from forge_worker.runners.process.door import SOCKET
from forge_worker.runners.process.runner import ProcessRunner, _leftover
from forge_worker.runners.process.shim import BLANK
from forge_worker.runners.runner import StartFailed
from support.workers.runners import Bench, Job, abandoned, make_spec, processes_with

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.waiting import Eventually

SAVES_AND_LEAVES = """
import signal
def leave(*_):
    open("saved", "w").write("checkpoint")
    raise SystemExit(0)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
while True: signal.pause()
"""
STUBBORN = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0: os.setsid()
print("ready", flush=True)
while True: signal.pause()
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(ProcessRunner(), tmp_path)
    yield bench
    bench.close()


def test_killed_agent_leaves_no_job_and_lets_it_save(bench: Bench, eventually: Eventually) -> None:
    token = uuid.uuid4().hex
    spec = make_spec(bench.root, (bench.interpreter, "-c", SAVES_AND_LEAVES, token))
    with abandoned("process", spec, b"ready"):
        eventually(lambda: not processes_with(token))
        assert (spec.work_dir / "saved").read_text() == "checkpoint"
        eventually(lambda: not processes_with(spec.name))


def test_killed_agent_leaves_no_stubborn_job_either(bench: Bench, eventually: Eventually) -> None:
    token = uuid.uuid4().hex
    command = (bench.interpreter, "-c", STUBBORN, token)
    with abandoned("process", make_spec(bench.root, command, grace_s=0.5), b"ready"):
        eventually(lambda: not processes_with(token))


def test_next_agent_reaps_what_is_still_in_its_grace(bench: Bench) -> None:
    token = uuid.uuid4().hex
    command = (bench.interpreter, "-c", STUBBORN, token)
    spec = make_spec(bench.root, command, grace_s=600)
    with abandoned("process", spec, b"ready"):
        assert len(processes_with(token)) == 2
        assert bench.runner.leftovers("another folder") == []
        (found,) = bench.runner.leftovers(spec.labels["forge.folder"])
        assert (found.name, found.labels) == (spec.name, spec.labels)
        bench.runner.reap(found)
        assert processes_with(token) == []
        bench.runner.reap(found)
        assert bench.runner.leftovers(spec.labels["forge.folder"]) == []


def test_job_whose_shim_is_killed_ends_with_an_unknown_code(
    bench: Bench, eventually: Eventually
) -> None:
    token = uuid.uuid4().hex
    job = bench.python(
        "import os, signal; os.fork(); print('ready', flush=True); signal.pause()", token
    )
    job.expect(b"ready\nready")
    os.kill(shim_of(job.spec.name), signal.SIGKILL)
    assert job.result().code is None
    eventually(lambda: not processes_with(token))


def test_service_manager_that_signals_everything_leaves_the_exit_to_the_agent(bench: Bench) -> None:
    job = bench.python(SAVES_AND_LEAVES)
    job.expect(b"ready")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(shim_of(job.spec.name), number)
    assert job.handle.wait(0.3) is None
    job.handle.stop()
    assert job.result().code == 0


def test_job_that_got_the_signal_too_has_not_ended_by_itself(bench: Bench) -> None:
    job = bench.python(SAVES_AND_LEAVES)
    job.expect(b"ready")
    shim = psutil.Process(shim_of(job.spec.name))
    for process in (shim, *shim.children()):
        process.terminate()
    ended = job.result()
    assert (ended.code, ended.detail) == (None, "all of the worker's processes got SIGTERM")
    assert ended.void == 0


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("kill $PPID; sleep 1; exit 3", 3),
        ("kill $PPID $$", None),
        ("trap 'exit 0' TERM; kill $PPID $$", None),
    ],
)
def test_job_that_signals_others_has_its_own_code(
    bench: Bench, script: str, code: int | None
) -> None:
    """As with `pkill python`, by which scripts end the servers that they started."""
    assert bench.run("/bin/sh", "-c", script).result().code == code


def test_log_on_a_full_disk_does_not_hold_up_the_job(bench: Bench) -> None:
    spec = make_spec(bench.root, (bench.interpreter, "-c", "print('x' * 1_000_000)"))
    spec.log_path.symlink_to("/dev/full")
    ended = bench.start(spec).result()
    assert ended.code == 0
    assert "No space left on device" in ended.detail


def test_missing_folder_for_the_log_is_a_failed_start(bench: Bench) -> None:
    spec = make_spec(bench.root, ("true",))
    spec.log_path.parent.rename(bench.root / "elsewhere")
    with pytest.raises(StartFailed) as refused:
        bench.start(spec)
    assert refused.value.hint
    assert processes_with(spec.name) == []


def test_job_without_gpus_sees_none(bench: Bench) -> None:
    job = bench.run("sh", "-c", 'echo "[$CUDA_VISIBLE_DEVICES]"')
    job.result()
    assert job.output == b"[]\n"


def test_job_sees_its_gpus(bench: Bench) -> None:
    job = bench.run("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"', gpu_uuids=("GPU-a", "GPU-b"))
    job.result()
    assert job.output == b"GPU-a,GPU-b\n"


def test_agents_secrets_are_not_in_the_shims_environment(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGE_DATABASE_URL", "hush")
    job = bench.python(STUBBORN, grace_s=0.1)
    job.expect(b"ready")
    assert "hush" not in psutil.Process(shim_of(job.spec.name)).environ().values()


def test_shims_are_copies_of_one_server(bench: Bench) -> None:
    jobs = [bench.python(STUBBORN, labels={"forge.folder": f"{n}"}) for n in range(3)]
    server = server_of(jobs[0])
    for number, job in enumerate(jobs):
        assert server_of(job) == server
        command = psutil.Process(shim_of(job.spec.name)).cmdline()
        (found,) = filter(None, [_leftover({"pid": 1, "create_time": 1.5, "cmdline": command})])
        assert (found.name, found.labels) == (job.spec.name, {"forge.folder": f"{number}"})
    # Its copies that have ended are not left as zombies.
    jobs[0].handle.remove()
    for child in server.children():
        # One that has ended by now is none either.
        with suppress(psutil.NoSuchProcess):
            assert child.status() != psutil.STATUS_ZOMBIE


def test_death_of_the_server_ends_no_job(bench: Bench) -> None:
    job = bench.python(SAVES_AND_LEAVES)
    server = server_of(job)
    server.kill()
    other = bench.python(SAVES_AND_LEAVES)
    assert server_of(other) != server
    for one in (job, other):
        one.handle.stop()
        assert one.result().code == 0


def test_server_that_hangs_is_no_reason_to_run_a_job_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = server_of(bench.python(STUBBORN))
    server.suspend()
    monkeypatch.setattr(shims, "START_PATIENCE_S", 0.2)
    with pytest.raises(StartFailed):
        bench.run("sh", "-c", "echo ran >>$0", str(bench.root / "ran"))
    server.resume()
    # The copies that it makes now find nobody who gives them an order.
    assert bench.run("true").result().code == 0
    assert not (bench.root / "ran").exists()


def test_process_that_was_killed_while_it_waited_for_a_job_is_replaced(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(shims, "LATER_S", 0.0)
    server = server_of(bench.python(STUBBORN))

    def waiting() -> list[psutil.Process]:
        spare = [one for one in server.children() if one.cmdline()[7:] == [BLANK]]
        return [process for one in spare for process in one.children()]

    eventually(waiting)
    (process,) = waiting()
    process.kill()
    eventually(lambda: process.status() == psutil.STATUS_ZOMBIE)
    assert bench.run("true").result().code == 0


@pytest.mark.parametrize(("strict", "waits"), [(False, True), (True, False)])
def test_job_without_an_agent_has_its_grace_before_its_lease_ends_if_that_is_strict(
    bench: Bench, *, strict: bool, waits: bool
) -> None:
    assert isinstance(bench.runner, ProcessRunner)
    bench.runner.outlive(60, strict=strict)
    job = bench.python(STUBBORN, grace_s=60)
    job.expect(b"ready")
    assert job.spec.log_path.with_name(SOCKET).exists() == waits


def test_labels_that_are_too_long_are_refused(bench: Bench) -> None:
    with pytest.raises(StartFailed, match="labels"):
        bench.run("true", labels={"forge.folder": "x" * 5000})


def test_server_leaves_with_its_agent(tmp_path: Path, eventually: Eventually) -> None:
    runner = ProcessRunner()
    job = Bench(runner, tmp_path).python(STUBBORN)
    server = server_of(job)
    job.handle.remove()
    del runner, job
    gc.collect()
    eventually(lambda: not server.is_running())


def server_of(job: Job) -> psutil.Process:
    """Wait until a job runs, and return the fork server that started its shim."""
    job.expect(b"ready")
    found = psutil.Process(shim_of(job.spec.name)).parent()
    assert found is not None
    assert found.cmdline()[7:] == [BLANK]
    return found


def shim_of(name: str) -> int:
    (pid,) = processes_with(name)
    return pid
