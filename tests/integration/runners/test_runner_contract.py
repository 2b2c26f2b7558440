"""The guarantees for jobs that all runners give."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import threading
import time
import uuid
from dataclasses import astuple, replace
from typing import TYPE_CHECKING

import pytest
from support.workers.runners import (
    KINDS,
    LONG_S,
    Bench,
    Job,
    engine_kind,
    make_runner,
    make_spec,
    needs_limits,
    processes_with,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.waiting import Eventually


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(make_runner(request.param), tmp_path)
    yield bench
    bench.close()


def variables(job: Job) -> dict[str, str]:
    """Return the environment that the job `env -0` was given."""
    assert job.result().code == 0
    return dict(line.split("=", 1) for line in job.output.decode().rstrip("\0").split("\0"))


def test_job_sees_its_own_variables(bench: Bench) -> None:
    seen = variables(bench.run("env", "-0", env={"LR": "0.1", "NOTE": "två ord = ✓\nline"}))
    assert (seen["LR"], seen["NOTE"]) == ("0.1", "två ord = ✓\nline")
    assert seen["PATH"]


def test_nothing_of_the_agents_environment_leaks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORGE_DATABASE_URL", "AWS_SECRET_ACCESS_KEY", "PYTHONPATH", "SOMETHING"):
        monkeypatch.setenv(name, "hush")
    seen = variables(bench.run("env", "-0"))
    assert "hush" not in seen.values()
    machine = {"PATH", "HOME", "LANG", "TZ", "HOSTNAME", "PWD", "USER", "LOGNAME"}
    gpus = {f"{vendor}_VISIBLE_DEVICES" for vendor in ("CUDA", "NVIDIA", "HIP", "ROCR")}
    assert set(seen) <= machine | gpus


def test_jobs_user_has_a_name_that_the_job_may_change(bench: Bench) -> None:
    asks = "import getpass, os; print(getpass.getuser(), os.environ['USER'], os.environ['LOGNAME'])"
    job = bench.python(asks)
    assert job.result().code == 0
    first, *others = job.output.split()
    assert others == [first, first]
    job = bench.python(asks, env={"USER": "ann"})
    assert job.result().code == 0
    assert job.output.split() == [first, b"ann", first]


def test_home_is_writable(bench: Bench) -> None:
    assert bench.run("sh", "-c", 'test -w "$HOME"').result().code == 0


def test_job_starts_in_its_work_folder(bench: Bench) -> None:
    job = bench.python("import os; print(os.getcwd())")
    assert job.result().code == 0
    assert job.output.decode().strip() == str(bench.runner.paths(job.spec).work_dir)


def test_job_reads_what_was_put_into_its_work_folder(bench: Bench) -> None:
    job = bench.python(
        "import pathlib\n"
        "while not pathlib.Path('data').exists(): pass\n"
        "print(pathlib.Path('data').read_text())"
    )
    (job.spec.work_dir / "data.new").write_text("hello")
    (job.spec.work_dir / "data.new").rename(job.spec.work_dir / "data")
    assert job.result().code == 0
    assert job.output == b"hello\n"


def test_agent_can_read_and_remove_what_the_job_wrote(bench: Bench) -> None:
    source = """
import os, pathlib, sys
for folder in map(pathlib.Path, sys.argv[1:]):
    inner = folder / "deep" / "er"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    (inner / "file").chmod(0o600)
    inner.chmod(0o700)
"""
    spec = make_spec(bench.root, ())
    folders = map(str, astuple(bench.runner.paths(spec)))
    job = bench.start(replace(spec, command=(bench.interpreter, "-c", source, *folders)))
    assert job.result().code == 0
    for folder in spec.folders:
        assert (folder / "deep" / "er" / "file").read_text() == "x"
        shutil.rmtree(folder / "deep")


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_exit_code_is_the_jobs_own(bench: Bench, code: int) -> None:
    ended = bench.python(f"raise SystemExit({code})").result()
    assert (ended.code, ended.oom_killed) == (code, False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_death_by_a_signal_is_128_and_its_number(bench: Bench, number: signal.Signals) -> None:
    ended = bench.python(f"import os; os.kill(os.getpid(), {number:d})").result()
    assert (ended.code, ended.oom_killed) == (128 + number, False)


def test_command_that_is_not_there_ends_in_127(bench: Bench) -> None:
    job = bench.run("no-such-command", "x")
    assert job.result().code == 127
    assert b"no-such-command" in job.output


def test_file_that_is_not_executable_ends_in_126(bench: Bench) -> None:
    job = bench.run("/etc/passwd")
    assert job.result().code == 126
    assert b"/etc/passwd" in job.output


def test_arguments_are_passed_unchanged(bench: Bench) -> None:
    given = ["", " ", "a b", "$HOME", '"', "'", "\\", "*", "--", "-c", "ü", "x\ny"]
    job = bench.python("import json, sys; print(json.dumps(sys.argv[1:]))", *given)
    assert job.result().code == 0
    assert json.loads(job.output) == given


def test_stdout_and_stderr_keep_their_order(bench: Bench) -> None:
    job = bench.python(
        "import os\nfor n in range(5000): os.write(1 + n % 2, b'%d\\n' % n)",
    )
    assert job.result().code == 0
    assert job.output == b"".join(b"%d\n" % n for n in range(5000))


def test_200_megabytes_of_output_arrive_whole(bench: Bench) -> None:
    job = bench.python(
        "import os\n"
        "block = b''.join(b'%07d\\n' % n for n in range(125_000))\n"
        "for _ in range(200):\n"
        "    left = memoryview(block)\n"
        "    while left: left = left[os.write(1, left):]\n"
    )
    assert job.result().code == 0
    assert job.spec.log_path.stat().st_size == 200_000_000
    block = b"".join(b"%07d\n" % n for n in range(125_000))
    expected = hashlib.sha256()
    for _ in range(200):
        expected.update(block)
    with job.spec.log_path.open("rb") as log:
        assert hashlib.file_digest(log, "sha256").digest() == expected.digest()


def test_last_line_stays_without_its_newline(bench: Bench) -> None:
    job = bench.python("import os; os.write(1, b'a\\nb')")
    assert job.result().code == 0
    assert job.output == b"a\nb"


def test_output_may_be_any_bytes(bench: Bench) -> None:
    job = bench.python(
        "import os; os.write(1, bytes(range(256)) * 9); os.write(2, '日本✓'.encode())"
    )
    assert job.result().code == 0
    assert job.output == bytes(range(256)) * 9 + "日本✓".encode()


def test_output_is_there_while_the_job_runs(bench: Bench) -> None:
    job = bench.python("import signal; print('half a line', end='', flush=True); signal.pause()")
    job.expect(b"half a line")
    assert job.handle.wait(0) is None


def test_opening_dev_stderr_again_cuts_nothing_off(bench: Bench) -> None:
    job = bench.run("sh", "-c", "echo one; echo two >/dev/stderr; echo three >/dev/stdout")
    assert job.result().code == 0
    assert job.output == b"one\ntwo\nthree\n"


def test_log_is_appended_to(bench: Bench) -> None:
    job = bench.python("print('again')")
    job.result()
    again = bench.runner.start(job.spec)
    try:
        assert again.wait(60) is not None
        assert job.output == b"again\nagain\n"
    finally:
        again.remove()


def test_stdin_is_empty(bench: Bench) -> None:
    job = bench.python("import sys; print(repr(sys.stdin.read()))")
    assert job.result().code == 0
    assert job.output == b"''\n"


def test_job_inherits_no_open_file(bench: Bench) -> None:
    job = bench.run("ls", "/proc/self/fd")
    assert job.result().code == 0
    assert job.output.split() == [b"0", b"1", b"2", b"3"]  # 3 is ls reading the folder


# Podman's init leaves SIGTSTP, SIGTTIN and SIGTTOU blocked.
OF_CATATONIT = 0b111 << 19


def test_job_starts_with_default_signals_and_umask(bench: Bench) -> None:
    job = bench.run("sh", "-c", "umask; exec grep -E '^Sig(Blk|Ign)' /proc/self/status")
    assert job.result().code == 0
    umask, blocked, ignored = job.output.decode().splitlines()
    assert umask == "0022"
    contained = bench.runner.kind == "docker" and engine_kind().podman
    assert int(blocked.split()[1], 16) & ~(OF_CATATONIT if contained else 0) == 0
    # Signals 32 and 33 are the C library's own: a process started by posix_spawn, as make does it,
    # has them ignored, and no program can change that.
    assert int(ignored.split()[1], 16) & ~(0b11 << 31) == 0


def test_large_environment_and_long_argument(bench: Bench) -> None:
    env = {f"BIG_{n}": chr(97 + n % 26) * 5000 for n in range(200)}
    source = (
        "import os, sys\n"
        "big = sum(len(v) for k, v in os.environ.items() if k.startswith('BIG_'))\n"
        "print(big, len(sys.argv[1]))"
    )
    job = bench.python(source, "x" * 100_000, env=env)
    assert job.result().code == 0
    assert job.output.split() == [b"1000000", b"100000"]


HANDLES_SIGTERM = """
import os, signal
def leave(*_):
    # Not print: the signal may come while "ready" is still being printed.
    os.write(1, b"leaving\\n")
    raise SystemExit(3)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
while True: signal.pause()
"""
IGNORES_SIGTERM = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True: signal.pause()
"""


def test_wait_ends_when_its_descriptor_can_be_read_from(bench: Bench) -> None:
    job = bench.python(IGNORES_SIGTERM)
    job.expect(b"ready")
    wake, ring = os.pipe()
    try:
        assert job.handle.wait(0, wake) is None
        threading.Timer(0.1, os.write, [ring, b"!"]).start()
        began = time.monotonic()
        assert job.handle.wait(LONG_S, wake) is None
        assert time.monotonic() - began < LONG_S / 2
        job.handle.remove()
        assert job.handle.wait(0, wake) is not None
    finally:
        os.close(wake)
        os.close(ring)


def test_stop_keeps_the_code_of_a_job_that_leaves_in_order(bench: Bench) -> None:
    job = bench.python(HANDLES_SIGTERM)
    job.expect(b"ready")
    job.handle.stop()
    # One that was killed after the grace would have another code.
    assert job.result(0).code == 3
    assert job.output == b"ready\nleaving\n"


def test_stop_kills_after_the_grace(bench: Bench) -> None:
    job = bench.python(IGNORES_SIGTERM, grace_s=0.7)
    job.expect(b"ready")
    before = time.monotonic()
    job.handle.stop()
    assert time.monotonic() - before >= 0.7
    ended = job.result(0)
    assert (ended.code, ended.oom_killed) == (128 + signal.SIGKILL, False)


def test_everything_may_be_asked_again_after_the_end(bench: Bench) -> None:
    job = bench.python(HANDLES_SIGTERM)
    job.expect(b"ready")
    for act in (job.handle.stop, job.handle.remove):
        act()
        act()
        job.handle.signal(signal.SIGUSR1)
        job.handle.stop()
        assert job.result(0).code == 3


def test_remove_ends_a_running_job(bench: Bench) -> None:
    token = uuid.uuid4().hex
    job = bench.python(IGNORES_SIGTERM, token)
    job.expect(b"ready")
    assert processes_with(token)
    job.handle.remove()
    assert processes_with(token) == []
    assert job.handle.wait(0) is not None


def test_signal_reaches_the_main_process(bench: Bench) -> None:
    job = bench.python("""
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print("ready", flush=True)
signal.sigwait({signal.SIGUSR1})
print("poked", flush=True)
""")
    job.expect(b"ready")
    job.handle.signal(signal.SIGUSR1)
    assert job.result().code == 0
    assert job.output == b"ready\npoked\n"


LEAVES_CHILDREN = """
import os, subprocess, sys
sleeper = ["sh", "-c", "echo ready; sleep 600; : " + sys.argv[1]]
subprocess.Popen(sleeper)
subprocess.Popen(sleeper, start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp(sleeper[0], ["sh", "-c", "trap '' TERM HUP; " + sleeper[2]])
    os._exit(0)
os.wait()
while True:
    if os.path.exists("go"): os._exit(7)
"""


def test_children_and_daemons_left_behind_are_gone_at_the_exit(
    bench: Bench, eventually: Eventually
) -> None:
    token = uuid.uuid4().hex
    job = bench.python(LEAVES_CHILDREN, token)
    eventually(lambda: job.output.count(b"ready") == 3)
    assert len(processes_with(token)) >= 4
    (job.spec.work_dir / "go").touch()
    assert job.result().code == 7
    assert processes_with(token) == []


def test_orphans_are_reaped_while_the_job_runs(bench: Bench) -> None:
    job = bench.python("""
import os, threading
orphans, write = os.pipe()
for _ in range(30):
    if (middle := os.fork()) == 0:
        if (orphan := os.fork()) == 0: os._exit(0)
        os.write(write, b"%d\\n" % orphan)
        os._exit(0)
    os.waitpid(middle, 0)
os.close(write)
left = set(os.fdopen(orphans).read().split())
assert len(left) == 30
while left: left = {pid for pid in left if os.path.exists("/proc/" + pid)}
""")
    assert job.result().code == 0


HOLDS = "held = bytearray(b'x') * ({mib} << 20); import os"


def test_too_much_memory_ends_the_job(bench: Bench) -> None:
    needs_limits(bench)
    # It keeps the memory that it took: a process is measured now and then, not as it allocates.
    waits = "; import signal; signal.pause()"
    ended = bench.python(HOLDS.format(mib=600) + waits, memory_mb=128).result()
    assert (ended.code, ended.oom_killed) == (128 + signal.SIGKILL, True)


def test_memory_shared_with_children_counts_once(bench: Bench) -> None:
    job = bench.python(
        HOLDS.format(mib=60)
        + "\nimport threading"
        + "\nfor _ in range(5):"
        + "\n    if os.fork() == 0: threading.Event().wait(1.5); os._exit(0)"
        + "\nfor _ in range(5): os.wait()",
        memory_mb=160,
    )
    ended = job.result()
    assert (ended.code, ended.oom_killed) == (0, False)


def test_jobs_run_side_by_side(bench: Bench) -> None:
    waits = "import os, sys; print(sys.argv[1], flush=True)\nwhile not os.path.exists('go'): pass"
    jobs = [bench.python(waits, f"job {n}", cpus=0.5) for n in range(4)]
    for n, job in enumerate(jobs):
        job.expect(b"job %d" % n)
    assert [job.handle.wait(0) for job in jobs] == [None] * 4
    for job in jobs:
        (job.spec.work_dir / "go").touch()
    assert [job.result().code for job in jobs] == [0] * 4
    assert [job.output for job in jobs] == [b"job %d\n" % n for n in range(4)]


def test_leftovers_do_not_name_ones_own_jobs(bench: Bench) -> None:
    job = bench.python(IGNORES_SIGTERM)
    job.expect(b"ready")
    assert bench.runner.leftovers(job.spec.labels["forge.folder"]) == []


def test_nothing_but_the_log_is_left_beside_the_folders(bench: Bench) -> None:
    job = bench.run("true")
    job.result()
    job.handle.remove()
    there = {entry.name for entry in os.scandir(job.spec.log_path.parent)}
    assert there == {"work_dir", "output_dir", "checkpoint_dir", "control_dir", "log"}
