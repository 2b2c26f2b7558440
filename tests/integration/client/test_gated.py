"""Programs that are loaded before they may run."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from forge_client.up.child_process import GATED, ChildProcess
from support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import os, sys

print("loaded", flush=True)

def main():
    print(sys.argv[1:], os.environ["EARLY"], os.environ["LATE"], sys.stdin.read() == "", flush=True)
"""


def program(folder: Path) -> ChildProcess:
    """Return one of the program, which says what it does into a file."""
    (folder / "said_by.py").write_text(PROGRAM)
    env = {"PYTHONPATH": str(folder), "EARLY": "early"}
    return ChildProcess("one", "said_by", folder, folder / "log", env)


def test_what_is_loaded_runs_once_it_is_started_with_what_is_known_by_then(tmp_path: Path) -> None:
    child = program(tmp_path)
    child.load()
    assert eventually(lambda: (tmp_path / "log").read_text() == "loaded\n")
    assert child.alive
    child.env["LATE"] = "late"
    child.start()
    assert child.wait(60)
    assert (tmp_path / "log").read_text().splitlines() == ["loaded", "[] early late True"]
    assert child.look_after() == 0


def test_what_is_loaded_runs_no_further_when_whoever_loaded_it_is_gone(tmp_path: Path) -> None:
    child = program(tmp_path)
    done = subprocess.run(
        [sys.executable, "-P", GATED, child.module],
        env=child.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "loaded\n"


def test_one_that_falls_over_while_it_loads_is_seen(tmp_path: Path) -> None:
    child = program(tmp_path)
    (tmp_path / "said_by.py").write_text("raise SystemExit(3)")
    child.load()
    assert child.wait(60)
    child.start()
    assert child.look_after() == 3
