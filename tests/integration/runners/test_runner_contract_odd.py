"""The guarantees that all runners give to jobs that behave oddly."""

from __future__ import annotations

import hashlib
import json
import signal
import stat
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from forge_worker.files.safe_files import remove_tree
from support.workers.runners import (
    KINDS,
    Bench,
    abandoned,
    make_runner,
    make_spec,
    needs_limits,
    processes_with,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.waiting import Eventually

UP = "print('up', flush=True); "
WAITS = f"import signal; {UP}signal.pause()"


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(make_runner(request.param), tmp_path)
    yield bench
    bench.close()


# Signals and ends.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signal_that_is_not_handled_ends_the_job(bench: Bench, number: signal.Signals) -> None:
    # A shell, since Python handles SIGINT in its own way.
    job = bench.run("sh", "-c", "echo up; while :; do sleep 0.05; done")
    job.expect(b"up")
    job.handle.signal(number)
    assert job.result().code == 128 + number


@pytest.mark.parametrize("code", [2, 126, 127, 137])
def test_code_with_a_meaning_elsewhere_is_passed_on(bench: Bench, code: int) -> None:
    ended = bench.run("sh", "-c", f"exit {code}").result()
    assert (ended.code, ended.oom_killed) == (code, False)


def test_job_that_is_stopped_as_it_starts_is_gone(bench: Bench) -> None:
    token = uuid.uuid4().hex
    job = bench.python(WAITS, token, grace_s=1)
    job.handle.stop()
    assert job.result(0).code in {128 + signal.SIGTERM, 128 + signal.SIGKILL}
    assert processes_with(token) == []


def test_job_that_halted_itself_is_killed_after_the_grace(
    bench: Bench, eventually: Eventually
) -> None:
    token = uuid.uuid4().hex
    job = bench.python("import os, signal; os.kill(0, signal.SIGSTOP)", token, grace_s=0.3)
    eventually(lambda: processes_with(token, psutil.STATUS_STOPPED))
    job.handle.stop()
    assert job.result(0).code == 128 + signal.SIGKILL


def test_several_threads_wait_for_the_same_exit(bench: Bench) -> None:
    job = bench.python(f"import os; {UP}\nwhile not os.path.exists('go'): pass\nos._exit(9)")
    job.expect(b"up")
    with ThreadPoolExecutor(6) as threads:
        waiting = [threads.submit(job.handle.wait, 60) for _ in range(6)]
        (job.spec.work_dir / "go").touch()
        assert {seen.code for one in waiting if (seen := one.result()) is not None} == {9}


def test_removing_from_several_threads_while_it_runs_is_fine(bench: Bench) -> None:
    token = uuid.uuid4().hex
    job = bench.python(WAITS, token)
    job.expect(b"up")
    with ThreadPoolExecutor(4) as threads:
        for one in [threads.submit(job.handle.remove) for _ in range(4)]:
            one.result()
    assert processes_with(token) == []
    assert job.result().code in {None, 128 + signal.SIGKILL}


def test_job_of_a_killed_agent_is_found_by_its_labels_and_reaped(
    bench: Bench, eventually: Eventually
) -> None:
    token = uuid.uuid4().hex
    stubborn = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}"
    command = (bench.interpreter, "-c", f"while True:\n {stubborn}", token)
    spec = make_spec(bench.root, command, grace_s=600)
    with abandoned(bench.runner.kind, spec, b"up"):
        assert processes_with(token)
        assert bench.runner.leftovers("another folder") == []
        (found,) = bench.runner.leftovers(spec.labels["forge.folder"])
        assert found.name == spec.name
        assert found.labels.items() >= dict(spec.labels).items()
        bench.runner.reap(found)
        eventually(lambda: not processes_with(token))
        assert bench.runner.leftovers(spec.labels["forge.folder"]) == []
        assert not list(spec.log_path.parent.glob("*.pipe"))


# What is passed to a job, near the kernel's limits and beyond them.


def test_empty_and_odd_values_are_passed(bench: Bench) -> None:
    given = {"EMPTY": "", "_1": "=", "lower": "\t1e-10 Å ✓\n", "QUOTED": "'\"$HOME`true`\\"}
    job = bench.python(
        "import json, os, sys; print(json.dumps([os.environ[n] for n in sys.argv[1:]]))",
        *given,
        env=given,
    )
    assert job.result().code == 0
    assert json.loads(job.output) == list(given.values())


def test_longest_argument_that_the_kernel_takes_is_passed(bench: Bench) -> None:
    job = bench.python("import sys; print(len(sys.argv[1]))", "x" * (128 * 1024 - 1))
    assert job.result().code == 0
    assert job.output == b"131071\n"


@pytest.mark.parametrize("too_much", ["argument", "environment"])
def test_more_than_the_kernel_takes_is_said_clearly(bench: Bench, too_much: str) -> None:
    if too_much == "argument":
        job = bench.run("echo", "x" * 128 * 1024)
    else:
        job = bench.run("echo", env={f"V{n}": "x" * 100_000 for n in range(30)})
    # A container's first process is the engine's own, and has its own code for this: 1 with runc
    # 1.1, 255 with later ones and with crun.
    assert job.result().code in ({1, 255} if bench.runner.kind == "docker" else {126})
    assert b"rgument list too long" in job.output


@pytest.mark.parametrize("first", ["#!/bin/sh\n", ""])
def test_command_may_be_a_file_of_the_project(bench: Bench, first: str) -> None:
    spec = make_spec(bench.root, ("./run.sh", "a b"))
    script = spec.work_dir / "run.sh"
    script.write_text(first + 'echo "$0: $1"\n')
    script.chmod(0o755)
    job = bench.start(spec)
    assert job.result().code == 0
    assert job.output == b"./run.sh: a b\n"


def test_nothing_is_a_terminal(bench: Bench) -> None:
    job = bench.python("import os; print([os.isatty(n) for n in range(3)])")
    assert job.result().code == 0
    assert job.output == b"[False, False, False]\n"


# Output.


def test_one_line_of_30_megabytes_arrives_whole(bench: Bench) -> None:
    job = bench.python(
        "import os\n"
        "block = bytes(n % 255 + (n % 255 >= 10) for n in range(1_000_000))\n"
        "for _ in range(30):\n"
        "    left = memoryview(block)\n"
        "    while left: left = left[os.write(1, left):]\n"
    )
    assert job.result().code == 0
    block = bytes(n % 255 + (n % 255 >= 10) for n in range(1_000_000))
    assert b"\n" not in block
    assert hashlib.sha256(job.output).digest() == hashlib.sha256(block * 30).digest()


def test_lines_of_many_writers_stay_whole(bench: Bench) -> None:
    job = bench.python("""
import os
for n in range(8):
    if os.fork() == 0:
        for _ in range(500): os.write(1, b"%d" % n * 1000 + b"\\n")
        os._exit(0)
for n in range(8): os.wait()
""")
    assert job.result().code == 0
    lines = job.output.splitlines()
    assert len(lines) == 4000
    assert {len(set(line)) for line in lines} == {1}


def test_job_that_closes_its_output_goes_on(bench: Bench) -> None:
    job = bench.python(
        "import os; os.write(1, b'bye'); os.closerange(0, 3); open('on', 'w').close(); os._exit(4)"
    )
    assert job.result().code == 4
    assert (job.spec.work_dir / "on").exists()
    assert job.output == b"bye"


# Files.


def test_only_a_container_keeps_a_job_to_its_folders(bench: Bench) -> None:
    contained = bench.runner.kind == "docker"
    outside = "/usr/outside" if contained else str(bench.root / "outside")
    job = bench.python("import sys; open(sys.argv[1], 'w').close()", outside)
    assert job.result().code == (1 if contained else 0)
    assert (b"Read-only file system" in job.output) == contained


def test_agent_can_remove_whatever_a_job_leaves(bench: Bench) -> None:
    job = bench.python("""
import os, pathlib, socket
os.mkfifo("fifo")
with socket.socket(socket.AF_UNIX) as door: door.bind("door")
os.symlink("/etc/hostname", "link")
os.symlink("link", "ring"); os.link("fifo", "again")
pathlib.Path("naïve ✓ \\n\\\\").touch()
open(b"not \\xff unicode", "w").close()
closed = pathlib.Path("closed"); closed.mkdir(); (closed / "file").touch(0); closed.chmod(0)
os.mkdir("set", 0o3000); os.chmod("set", 0o4000)
for _ in range(400):
    os.mkdir("d" * 200); os.chdir("d" * 200)
""")
    assert job.result().code == 0, job.output
    assert stat.S_ISFIFO((job.spec.work_dir / "fifo").lstat().st_mode)
    assert len(list(job.spec.work_dir.iterdir())) == 10
    assert remove_tree(job.spec.work_dir)
    assert Path("/etc/hostname").exists()


# Processes.


def test_zombies_and_many_live_children_are_gone_at_the_exit(bench: Bench) -> None:
    token = uuid.uuid4().hex
    job = bench.python(
        """
import os, signal
for n in range(150):
    if os.fork() == 0:
        if n % 2: os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True: signal.pause()
os._exit(3)
""",
        token,
        memory_mb=2048,
    )
    assert job.result().code == 3
    assert processes_with(token) == []


def test_child_that_takes_too_much_memory_is_told_of(bench: Bench) -> None:
    needs_limits(bench)
    eats = "held = []\nwhile True: held.append(b'x' * (4 << 20))"
    job = bench.python(
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {eats!r}])", memory_mb=96
    )
    ended = job.result()
    assert ended.oom_killed
    # The kernel picks the child alone; without control groups for processes, their memory is
    # counted, and the job ends as a whole.
    assert ended.code in ({0} if bench.runner.kind == "docker" else {0, 128 + signal.SIGKILL})
