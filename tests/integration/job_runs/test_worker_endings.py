"""How jobs end, in each kind of runner, and that nothing is left of any."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.spec import Resources
from support.engine.registry import empty_registry
from support.workers.worker import SMALL, Bed, bed

if TYPE_CHECKING:
    from pathlib import Path

    from support.database.postgres import Server
    from support.waiting import Eventually

STUBBORN = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: print("no", flush=True))
os.write(1, b"up\\n")
while True:
    signal.pause()
"""
LEAVES_CHILDREN = """
import os, signal
heard, said = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.write(1, b"orphan\\n")
        os.write(said, b"!")
        while True:
            signal.pause()
    os._exit(0)
os.wait()
for _ in range(5):
    os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
os.read(heard, 1)
os.write(1, b"parent\\n")
"""
FILLS_ITS_DISK = """
import os, signal
with open("big", "wb") as file:
    for _ in range(60):
        file.write(os.urandom(1 << 20))
print("full", flush=True)
signal.pause()
"""
WAITS = """
import pathlib, threading
pathlib.Path("up").touch()
print("up", flush=True)
while not pathlib.Path("go").exists():
    threading.Event().wait(0.05)
print("unharmed")
"""
EATS_MEMORY = """
held = []
while True:
    held.append(b"x" * (8 << 20))
"""


def test_exit_code_is_kept_and_charged_as_a_failure(process: Bed) -> None:
    process.worker()
    job = process.script("print('first'); raise SystemExit(3)", max_failures=1)
    row = process.ended(job)
    assert (row["state"], row["reason"], row["exit_code"]) == ("dead", "exit_code", 3)
    assert process.reasons(job) == ["exit_code", "exit_code"]
    assert process.log(job) == b"first\nfirst\n"


def test_command_that_is_not_there_is_named_in_the_log(both: Bed) -> None:
    both.worker()
    job = both.submit("no-such-command")
    assert both.ended(job)["exit_code"] == 127
    assert b"no-such-command" in both.log(job)


def test_job_that_ignores_sigterm_is_killed_after_its_grace(both: Bed) -> None:
    both.worker()
    job = both.script(STUBBORN, grace_s=1)
    both.says(job, "up")
    both.queue.cancel(job)
    row = both.ended(job)
    assert (row["state"], row["exit_code"]) == ("cancelled", 137)
    said = b"forge: 1 process still ran when the time to stop was up and was killed: python"
    assert both.log(job).startswith(b"up\nno\n" + said)


def test_children_that_a_job_leaves_end_with_it(both: Bed) -> None:
    both.worker()
    job = both.script(LEAVES_CHILDREN)
    both.succeeds(job)
    *printed, said = both.log(job).splitlines()
    assert sorted(printed) == [b"orphan", b"parent"]
    names = b"killed: sleep (5), python"
    assert said.startswith(b"forge: 6 processes still ran when the command ended and were " + names)


def test_job_over_its_disk_limit_ends_alone(both: Bed, eventually: Eventually) -> None:
    both.worker()
    neighbour = both.script(WAITS)
    greedy = both.script(
        FILLS_ITS_DISK,
        max_failures=0,
        resources=Resources(cpus=0.5, memory_mb=256, disk_mb=20),
    )
    row = both.ended(greedy)
    assert (row["state"], row["reason"]) == ("dead", "disk_full")
    assert "20 MiB requested" in row["detail"]
    up = eventually(lambda: list(both.workers[0].folder.glob("jobs/*/work/up")))
    up[0].with_name("go").touch()
    both.succeeds(neighbour)
    assert both.log(neighbour) == b"up\nunharmed\n"


def test_job_over_its_memory_ends_as_oom(both: Bed) -> None:
    both.worker()
    small = Resources(cpus=0.5, memory_mb=64, disk_mb=100)
    job = both.script(EATS_MEMORY, resources=small)
    row = both.ended(job)
    assert (row["state"], row["reason"]) == ("dead", "oom")
    peak = both.jobs.attempts(job)[0]["peak_memory_mb"]
    # An engine removes what it killed, perhaps before anybody has looked at it.
    assert peak or both.kind == "docker"
    measured = f" (highest measured use: {peak} MiB)" if peak else ""
    more = 2 * max(64, peak or 0)
    assert row["detail"] == (
        f"needed more than its 64 MiB of memory{measured}: try --memory {more}MiB"
    )


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="no tmpfs")  # noqa: S108 - asked
def test_job_whose_files_take_its_memory_is_told_so(docker: Bed) -> None:
    with TemporaryDirectory(dir="/dev/shm") as folder:
        worker = docker.worker(worker_dir=folder)
        assert f"the worker's folder {folder} is in memory" in worker.output
        small = Resources(cpus=0.5, memory_mb=32, disk_mb=200)
        row = docker.ended(docker.script(FILLS_ITS_DISK, resources=small, max_failures=0))
        assert (row["state"], row["reason"]) == ("dead", "oom"), (row["exit_code"], row["detail"])
        assert row["detail"].endswith(" count as memory: the worker's folder is in memory")
        assert worker.leave() == 0


def test_job_over_its_time_limit_is_not_run_again(process: Bed) -> None:
    process.worker()
    job = process.script("print('up', flush=True); import signal; signal.pause()", timeout_s=1)
    row = process.ended(job)
    assert (row["state"], row["reason"]) == ("failed", "timeout")
    assert process.reasons(job) == ["timeout"]


def test_output_of_64_mb_is_stored_byte_for_byte(both: Bed) -> None:
    both.worker(log_flush_s="0.5")
    block, count = 1 << 20, 64
    source = (
        "import sys\n"
        f"for n in range({count}):\n"
        f"    sys.stdout.buffer.write(bytes([n % 251]) * {block})\n"
    )
    resources = Resources(cpus=1, memory_mb=256, disk_mb=1000)
    job = both.script(source, resources=resources)
    both.succeeds(job)
    log = both.log(job)
    assert len(log) == count * block
    # Compared outside `assert`: pytest would look for the differences in 64 MB, for minutes.
    same = log == b"".join(bytes([n % 251]) * block for n in range(count))
    assert same


def test_last_line_needs_no_end(process: Bed) -> None:
    process.worker()
    job = process.script("import sys; sys.stdout.write('a\\nhalf a line'); sys.stderr.write('!')")
    process.succeeds(job)
    assert sorted(process.log(job)) == sorted(b"a\nhalf a line!")


def test_half_a_line_can_be_read_while_the_job_runs(process: Bed) -> None:
    process.worker()
    job = process.script("print('50 %', end='', flush=True); import signal; signal.pause()")
    process.says(job, "50 %")
    process.queue.cancel(job)
    assert process.ended(job)["state"] == "cancelled"


def test_worker_without_a_default_image_says_which_jobs_it_runs(
    docker: Bed, eventually: Eventually
) -> None:
    worker = docker.worker(default_image="")
    eventually(lambda: "--default-image (FORGE_DEFAULT_IMAGE)" in worker.output)


def test_image_that_is_missing_ends_a_job_at_once(docker: Bed) -> None:
    docker.worker()
    with empty_registry() as registry:
        job = docker.submit("true", image=f"{registry}/no-such-image:1")
        row = docker.ended(job)
    assert (row["state"], row["reason"]) == ("failed", "image_missing")
    assert "no-such-image" in row["detail"]
    assert docker.reasons(job) == ["image_missing"]


def test_registry_that_does_not_answer_costs_a_loss_only(docker: Bed) -> None:
    docker.worker()
    job = docker.submit("true", image="127.0.0.1:9/no-such-image:1", max_losses=0, backoff_s=0)
    row = docker.ended(job)
    assert row["state"] == "dead"
    assert docker.reasons(job) == ["start_failed", "start_failed"]


def test_job_with_an_image_waits_for_a_worker_with_an_engine(process: Bed) -> None:
    process.worker()
    waits = process.submit("true", image="debian", priority=10)
    runs = process.submit("true")
    assert process.ended(runs)["state"] == "succeeded"
    assert process.jobs.job(waits)["state"] == "ready"


def test_jobs_run_at_once_as_far_as_cpus_and_memory_go(
    process: Bed, eventually: Eventually
) -> None:
    # Otherwise the lease of a job that has ended may be beside that of the next.
    worker = process.worker(cpus=2, memory_mb=1200, max_storing=0)
    needs = [SMALL.model_copy(update={"memory_mb": 400})] * 5
    needs += [SMALL.model_copy(update={"cpus": 1.5})] * 3
    jobs = {process.script(WAITS, resources=need): need for need in needs}
    loads: list[list[Resources]] = [[]]

    def all_succeeded() -> bool:
        with process.database.connection() as connection:
            rows = connection.execute("SELECT job_id FROM lease").fetchall()
        loads.append([jobs[row["job_id"]] for row in rows])
        if max(map(len, loads)) >= 2:
            for up in worker.folder.glob("jobs/*/work/up"):
                with suppress(FileNotFoundError):
                    up.with_name("go").touch()
        return all(process.job(job)["state"] == "succeeded" for job in jobs)

    eventually(all_succeeded)
    assert max(sum(need.cpus or 0 for need in load) for load in loads) <= 2
    assert max(sum(need.memory_mb or 0 for need in load) for load in loads) <= 1200


def test_workers_of_two_queues_share_an_engine_without_harm(
    tmp_path: Path, postgres_server: Server, template_database: str
) -> None:
    # Each queue counts its jobs, attempts and tokens from one.
    with ExitStack() as held:
        beds = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            url = held.enter_context(postgres_server.database(template_database))
            beds.append(held.enter_context(bed("docker", tmp_path / name, url)))
            beds[-1].worker()
        jobs = [made.script(WAITS) for made in beds]
        for made, job in zip(beds, jobs, strict=True):
            made.says(job, "up")
        for made, job in zip(beds, jobs, strict=True):
            next(made.workers[0].folder.glob("jobs/*/work")).joinpath("go").touch()
            made.succeeds(job)
        assert jobs[0] == jobs[1]
