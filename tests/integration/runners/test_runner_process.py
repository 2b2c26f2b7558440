"""What is particular to jobs that run as processes."""

from __future__ import annotations

import gc
import os
import signal
import uuid
from typing import TYPE_CHECKING

import psutil
import pytest
from forge_worker.runners.process.runner import ProcessRunner, _leftover
from forge_worker.runners.process.shim import BLANK
from forge_worker.runners.runner import StartFailed
from support.waiting import eventually
from support.workers.runners import Bench, abandoned, make_spec, processes_with

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


@pytest.fixture
def early(tmp_path: Path) -> Iterator[Bench]:
    """A bench whose next job's shim has been started."""
    early = Bench(ProcessRunner(ahead=True), tmp_path)
    assert early.run("true").result().code == 0
    yield early
    early.close()


def test_shim_that_was_started_early_is_the_next_jobs_own(early: Bench) -> None:
    spare = waiting_shim()
    job = early.python(STUBBORN, labels={"forge.worker": "desk", "forge.folder": "its own"})
    job.expect(b"ready")
    assert shim_of(job.spec.name) == spare
    command = psutil.Process(spare).cmdline()
    (found,) = filter(None, [_leftover({"pid": spare, "create_time": 1.5, "cmdline": command})])
    assert (found.name, found.labels) == (job.spec.name, job.spec.labels)
    assert waiting_shim() != spare


def test_shim_that_died_before_its_job_is_replaced(early: Bench, eventually: Eventually) -> None:
    spare = waiting_shim()
    os.kill(spare, signal.SIGKILL)
    eventually(lambda: psutil.Process(spare).status() == psutil.STATUS_ZOMBIE)
    assert early.run("true").result().code == 0
    assert waiting_shim() != spare


def test_job_whose_labels_are_too_long_has_a_shim_of_its_own(early: Bench) -> None:
    spare, labels = waiting_shim(), {"forge.folder": "x" * 4000}
    job = early.python(STUBBORN, labels=labels)
    job.expect(b"ready")
    assert shim_of(job.spec.name) != spare == waiting_shim()


def test_shim_without_a_job_leaves_with_its_agent(tmp_path: Path, eventually: Eventually) -> None:
    runner = ProcessRunner(ahead=True)
    Bench(runner, tmp_path).run("true").result()
    spare = psutil.Process(waiting_shim())
    del runner
    gc.collect()
    eventually(lambda: not spare.is_running())


def waiting_shim() -> int:
    """Wait for a shim without a job, and return its process id."""
    children = psutil.Process().children
    (pid,) = eventually(lambda: [one.pid for one in children() if one.cmdline()[7:] == [BLANK]])
    return pid


def shim_of(name: str) -> int:
    (pid,) = processes_with(name)
    return pid
