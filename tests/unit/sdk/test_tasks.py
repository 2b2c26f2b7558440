"""What runs the tasks of a job: each has an end of its own, and is not run again after it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forge_client.errors import ClientError
from forge_client.project import task_runner
from forge_client.project.tasks import packs
from support.waiting import eventually

# Notes each of its runs, measures and finds something, and fails if it is told so.
SCRIPT = """
import json, os, sys
with open(sys.argv[1], "a") as ran:
    ran.write(os.environ["FORGE_TASK"] + " ")
with open(os.environ["FORGE_METRICS_FILE"], "a") as metrics:
    metrics.write('{"step": 1, "loss": 3}\\n{"step": 2, "loss": 1}\\nno line\\n')
with open(os.environ["FORGE_RESULT_FILE"], "w") as result:
    json.dump({"task": int(os.environ["FORGE_PARAM_N"])}, result)
sys.exit(int(sys.argv[2]))
"""


class Pack:
    """A job of commands in a folder, run as a worker would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ran = folder / "ran"
        for name in ("checkpoint", "output"):
            (folder / name).mkdir()
        (folder / "run.py").write_bytes(Path(task_runner.__file__).read_bytes())
        places = {"CHECKPOINT_DIR": "checkpoint", "OUTPUT_DIR": "output"}
        places |= {"RESULT_FILE": "result.json", "METRICS_FILE": "metrics.jsonl"}
        self.env = {f"FORGE_{name}": str(folder / place) for name, place in places.items()}

    def start(self, *commands: list[str]) -> subprocess.Popen[str]:
        tasks = [
            {"name": f"n={n}", "parameters": {"n": n}, "command": words}
            for n, words in enumerate(commands)
        ]
        (self.folder / "0.json").write_text(json.dumps(tasks))
        return subprocess.Popen(
            [sys.executable, self.folder / "run.py", "0"],
            env={**os.environ, **self.env},
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *codes: int) -> tuple[int, str]:
        commands = [[sys.executable, "-c", SCRIPT, str(self.ran), str(code)] for code in codes]
        with self.start(*commands) as process:
            return process.wait(), process.stderr.read() if process.stderr else ""

    def records(self) -> list[dict[str, Any]]:
        written = json.loads((self.folder / "result.json").read_text())
        records: list[dict[str, Any]] = written[task_runner.RECORDS]
        return records


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    return Pack(tmp_path)


def test_a_task_that_fails_does_not_end_the_others(pack: Pack) -> None:
    code, said = pack.run(0, 7, 0)
    assert code == 1
    assert said.splitlines() == ["task 1 failed: exit code 7", "1 of 3 tasks failed: 1"]
    records = pack.records()
    assert [one["state"] for one in records] == ["succeeded", "failed", "succeeded"]
    assert [one["result"] for one in records] == [{"task": 0}, {"task": 1}, {"task": 2}]
    assert records[1]["detail"] == "exit code 7"
    assert records[2]["metrics"] == {"loss": {"last": 1, "min": 1, "max": 3}}
    progress = (pack.folder / "metrics.jsonl").read_text().splitlines()[-1]
    assert json.loads(progress) == {"step": 3, "total": 3}
    assert [path.name for path in (pack.folder / "checkpoint").iterdir()] == [task_runner.FILE]


def test_the_next_attempt_runs_only_what_has_not_succeeded(pack: Pack) -> None:
    pack.run(0, 7, 0)
    assert pack.run(0, 0, 0) == (0, "")
    assert pack.ran.read_text().split() == ["0", "1", "2", "1"]
    assert [one["state"] for one in pack.records()] == ["succeeded"] * 3


def test_a_stop_leaves_the_task_that_runs_to_the_next_attempt(pack: Pack) -> None:
    """Its command has its time to save its state, whatever it exits with."""
    saves = "trap 'touch saved; exit 0' TERM; touch began; while :; do sleep 0.1; done"
    saves = f"cd {pack.folder}; {saves}"
    with pack.start(["true"], ["bash", "-c", saves], ["true"]) as process:
        eventually((pack.folder / "began").exists)
        (child,) = children(process.pid)
        os.kill(process.pid, signal.SIGTERM)
        os.kill(child, signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM
    assert (pack.folder / "saved").exists()
    assert [one.get("state") for one in pack.records()] == ["succeeded", None, None]


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_results_that_are_too_large_for_the_jobs_are_left_out_largest_first() -> None:
    tasks = [{"result": {"text": "x" * size}} for size in (10, 200_000, 100_000)]
    fitting = task_runner._fitting(tasks, len(json.dumps(tasks)))
    assert [bool(one["result"]) for one in fitting] == [True, False, True]
    assert fitting[1]["detail"] == task_runner.TOO_LARGE


@pytest.mark.parametrize("per_job", [0, 1001])
def test_a_job_has_neither_no_tasks_nor_too_many(per_job: int) -> None:
    assert packs([1, 2, 3], 2) == [[1, 2], [3]]
    with pytest.raises(ClientError, match="a job cannot have"):
        packs([1, 2, 3], per_job)
