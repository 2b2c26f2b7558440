"""The children of a `forge up`: forked, loaded before they may run, started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psutil
import pytest
from forge_client.direct import checks
from forge_client.running import Running
from forge_client.up import child_process
from forge_client.up.child_process import ChildProcess, StopSignals
from forge_client.up.children import Workers
from support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

# Only a test process warns: `forge up` has no threads when it forks.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
PROGRAM = """
import os, sys

def say(*words):
    # Not by print: pytest has another stdout there, which is forked along.
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

say("loaded")

def main():
    say(sys.argv[1:], os.environ["LATE"], os.read(0, 1) == b"", os.getsid(0) == os.getpid())
    sys.exit(int(os.environ["STATUS"]))
"""
SAID = "[] late True True"
KILLED = """
import os, sys
from pathlib import Path
from forge_client.up.child_process import ChildProcess
folder = Path(sys.argv[1])
ChildProcess("one", "said_by", folder, folder / "log", {}).load()
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChildProcess:
    """Return a child that runs the program, which logs what it does to a file."""
    (tmp_path / "said_by.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    env = {"LATE": "early", "STATUS": "0"}
    return ChildProcess("one", "said_by", tmp_path, tmp_path / "log", env, _pause=0.0)


def told(child: ChildProcess) -> list[str]:
    return child.log.read_text().splitlines() if child.log.exists() else []


def test_what_is_loaded_runs_once_it_is_started_with_what_is_known_by_then(
    child: ChildProcess,
) -> None:
    child.load()
    assert eventually(lambda: told(child) == ["loaded"])
    assert child.alive
    found = child_process.read_process(child.folder / "pid")
    assert found
    assert (found.ppid(), found.name()) == (os.getpid(), "forge one")
    child.env["LATE"] = "late"
    child.start()
    assert child.wait(60)
    assert told(child) == ["loaded", SAID]
    assert child.look_after() == 0


def test_a_loaded_child_stops_when_its_parent_is_gone(child: ChildProcess) -> None:
    subprocess.run(
        [sys.executable, "-c", KILLED, child.folder],
        env={**os.environ, "PYTHONPATH": str(child.folder)},
        check=False,
    )
    assert eventually(lambda: child_process.read_process(child.folder / "pid") is None)
    assert told(child) == ["loaded"]


def test_one_that_falls_over_while_it_loads_is_seen(child: ChildProcess) -> None:
    (child.folder / "said_by.py").write_text("raise SystemExit(3)")
    child.load()
    assert child.wait(60)
    child.start()
    assert child.look_after() == 3


def test_one_that_fell_over_is_started_again(child: ChildProcess) -> None:
    child.env.update(LATE="late", STATUS="5")
    child.start()
    assert eventually(child.look_after) == 5
    assert child.look_after() is None
    assert eventually(child.look_after) == 5
    assert told(child) == ["loaded", SAID] * 2


def test_a_worker_that_ends_at_once_is_told_with_its_last_words(child: ChildProcess) -> None:
    child.env.update(LATE="late", STATUS="5")
    with StopSignals() as asked:
        said = Workers([child], SimpleNamespace(workers=list), print).start(asked)  # type: ignore[arg-type]
    assert said == f"worker one exited with status 5: {SAID}"
    up = Running(child.folder, os.getpid(), "postgresql://", "file://", "0", trouble=said)
    up.write()
    assert checks.to_start(child.folder).startswith(f"{said}; correct that")


def test_a_signal_reaches_the_child_however_early_it_comes(child: ChildProcess) -> None:
    with StopSignals() as asked:
        child.load()
        child.ask(signal.SIGTERM)
        assert child.wait(60)
    assert child.look_after() == -signal.SIGTERM
    assert asked.urgency == 0


def test_a_reused_process_id_is_not_taken_for_the_child(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    child_process.write_pid(file, os.getpid())
    assert child_process.read_process(file) == psutil.Process()
    pid, started = map(int, file.read_text().split())
    file.write_text(f"{pid} {started + 1}")
    assert child_process.read_process(file) is None
    file.write_text(f"{pid}\n")
    assert child_process.read_process(file) is None


def test_a_process_that_has_ended_is_not_found(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        child_process.write_pid(tmp_path / "pid", ended.pid)
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert child_process.read_process(tmp_path / "pid") is None
    assert child_process.read_process(tmp_path / "pid") is None
