"""A stop reaches every process of a job: its main process first, then the rest."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest
from forge_worker.runners.docker.container import MainProcess
from support.workers.runners import Bench, make_runner, make_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.waiting import Eventually
    from support.workers.runners import Job

# Saves at the signal, and takes a moment for it; says how often it got the signal.
SAVES = """
import os, signal, sys, threading
got = []
def leave(number, frame):
    got.append(number)
    os.write(1, b"asked\\n")
number = getattr(signal, sys.argv[1] if len(sys.argv) > 1 else "SIGTERM")
signal.signal(number, leave)
os.write(1, b"up\\n")
while not got: threading.Event().wait(0.05)
threading.Event().wait(0.5)
open("saved", "a").write("x" * len(got))
os.write(1, b"leaving\\n")
sys.exit(3)
"""
# Ignores the signal, and polls a file instead.
POLLS = """
import os, signal, threading
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b"up\\n")
while not os.path.exists("preempt"): threading.Event().wait(0.05)
threading.Event().wait(0.5)
open("saved", "a").write("x")
"""
STUBBORN = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b"up\\n")
while True: signal.pause()
"""
LAUNCHER = """
import subprocess, sys
sys.exit(subprocess.run([sys.executable, "saves.py"]).returncode)
"""
# As torchrun and mpirun: it passes the signal on to its ranks and waits for them.
PASSES_ON = """
import signal, subprocess, sys
ranks = [subprocess.Popen([sys.executable, "saves.py"], start_new_session=True) for _ in range(2)]
signal.signal(signal.SIGTERM, lambda *_: [rank.terminate() for rank in ranks])
sys.exit(max(rank.wait() for rank in ranks))
"""
# The same, but it does not wait.
LEAVES_AT_ONCE = PASSES_ON.replace("for rank in ranks])", "for rank in ranks] and sys.exit(9))")
DAEMON = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp(sys.executable, [sys.executable, "saves.py"])
    os._exit(0)
os.wait()
import signal
import subprocess
while True: signal.pause()
"""
FILES = {
    "saves.py": SAVES,
    "polls.py": POLLS,
    "stubborn.py": STUBBORN,
    "launcher.py": LAUNCHER,
    "passes_on.py": PASSES_ON,
    "leaves_at_once.py": LEAVES_AT_ONCE,
    "daemon.py": DAEMON,
    "run.sh": "PYTHON saves.py $1\necho rest\n",
    "trap.sh": "trap 'echo trapped' TERM\nPYTHON saves.py\n",
    "script": "#!/bin/sh\nPYTHON saves.py\necho rest\n",
}


class Case(NamedTuple):
    """A command, how often the signal is handled below it, and how the main process ends.

    `ready` is how many programs are to be up, `goes_on` whether a shell runs its next command.
    """

    command: str
    code: int = 128 + signal.SIGTERM
    handled: int = 1
    number: signal.Signals = signal.SIGTERM
    ready: int = 1
    notice_s: float = 20
    goes_on: bool = False


CASES = {
    "plain": Case("exec PYTHON saves.py", 3),
    "script": Case("exec bash run.sh"),
    "executable script": Case("exec ./script"),
    "list": Case("PYTHON saves.py && echo rest"),
    "pipeline": Case("PYTHON saves.py | tee log.txt"),
    "pipeline below a script": Case("bash -c 'PYTHON saves.py | tee log.txt'; echo rest"),
    "background": Case("PYTHON saves.py & PYTHON saves.py & wait", handled=2, ready=2),
    "launcher": Case("exec PYTHON launcher.py"),
    "launcher below a launcher": Case("timeout 600 PYTHON launcher.py; echo rest"),
    "launcher that passes it on": Case("exec PYTHON passes_on.py", 3, 2, ready=2),
    "launcher that passes it on and leaves": Case("exec PYTHON leaves_at_once.py", 9, 2, ready=2),
    "daemon": Case("exec PYTHON daemon.py"),
    "own session": Case("setsid PYTHON saves.py; echo rest"),
    "another signal": Case(
        "bash run.sh SIGUSR1; echo rest", 128 + signal.SIGUSR1, number=signal.SIGUSR1
    ),
    "shell that waits for its command": Case("exec bash trap.sh", 3, notice_s=4),
    "the same with a signal that shells catch": Case(
        "exec bash run.sh SIGINT", 0, number=signal.SIGINT, notice_s=4, goes_on=True
    ),
    "poller": Case("PYTHON polls.py; echo rest", handled=1),
}


@pytest.fixture(params=["process", "docker"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(make_runner(request.param), tmp_path)
    yield bench
    bench.close()


def started(bench: Bench, command: str, *, grace_s: float = 20) -> Job:
    words = ("bash", "-c", command.replace("PYTHON", bench.interpreter))
    spec = make_spec(bench.root, words, grace_s=grace_s)
    for name, source in FILES.items():
        file = spec.work_dir / name
        file.write_text(source.replace("PYTHON", bench.interpreter))
        file.chmod(0o755)
    return bench.start(spec)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_process_has_its_time_to_save(
    bench: Bench, case: Case, eventually: Eventually
) -> None:
    job = started(bench, case.command)
    eventually(lambda: job.output.count(b"up\n") == case.ready)
    (job.spec.work_dir / "preempt").touch()
    job.handle.signal(case.number, case.notice_s)
    assert job.result().code == case.code
    assert (job.spec.work_dir / "saved").read_text() == "x" * case.handled
    assert (b"rest" in job.output) == case.goes_on
    assert b"killed" not in job.output


def test_what_is_killed_when_the_time_is_up_is_named(bench: Bench, eventually: Eventually) -> None:
    job = started(bench, "PYTHON stubborn.py & PYTHON stubborn.py | cat", grace_s=1)
    eventually(lambda: job.output.count(b"up\n") == 2)
    job.handle.stop()
    assert job.result(0).code == 128 + signal.SIGTERM
    *_, said = job.output.decode().splitlines()
    assert said.startswith(
        "forge: 3 processes still ran when the time to stop was up and were killed"
    )
    assert "python" in said
    assert "cat" in said


LEAVES = (
    "PYTHON stubborn.py & PYTHON saves.py & sleep 600 & until [ -e go ]; do sleep 0.1; done; exit 4"
)


def test_processes_left_behind_by_a_finished_command_are_named(
    bench: Bench, eventually: Eventually
) -> None:
    job = started(bench, LEAVES)
    eventually(lambda: job.output.count(b"up\n") == 2)
    (job.spec.work_dir / "go").touch()
    assert job.result().code == 4
    assert (job.spec.work_dir / "saved").read_text() == "x"
    *_, said = job.output.decode().splitlines()
    assert said.startswith("forge: 3 processes still ran when the command ended and were killed: ")
    assert "sleep" in said


def test_what_ends_with_its_command_is_no_leftover(bench: Bench) -> None:
    job = started(bench, "exec > >(sleep 0.3; cat; echo last); echo first")
    assert job.result().code == 0
    assert job.output == b"first\nlast\n"


@pytest.mark.parametrize("name", ["plain", "script", "own session"])
def test_agent_that_does_not_see_the_processes_has_the_container_signal_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually, name: str
) -> None:
    monkeypatch.setattr(MainProcess, "of", lambda *_: None)
    bench, case = Bench(make_runner("docker"), tmp_path), CASES[name]
    try:
        test_every_process_has_its_time_to_save(bench, case, eventually)
    finally:
        bench.close()


def test_shell_inside_a_container_holds_up_no_end_of_its_job(tmp_path: Path) -> None:
    bench = Bench(make_runner("docker"), tmp_path)
    try:
        for stops, code in ((True, 3), (False, 0)):
            waits = "echo up; until [ -e go ]; do :; done"
            job = started(bench, "exec PYTHON saves.py" if stops else waits)
            job.expect(b"up\n")
            inside = ["sh", "-c", "sleep 600; : inside"]
            subprocess.run(["docker", "exec", "--detach", job.spec.name, *inside], check=True)
            if stops:
                job.handle.stop()
            (job.spec.work_dir / "go").touch()
            assert job.result().code == code
            assert b"forge:" not in job.output
    finally:
        bench.close()
