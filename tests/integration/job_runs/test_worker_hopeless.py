"""A job's last words, and a typo that is run only once, with each kind of runner."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from forge_schema.model.spec import JobSpec
from forge_schema.queue.inputs import Uploads
from support.workers.worker import SMALL, Bed

if TYPE_CHECKING:
    from pathlib import Path

    from forge_schema.database.pool import Row

PROJECT = {
    "typo.py": "imprt numpy\n",
    "missing.py": "import no_such_module_at_all\n",
    "train.py": "import argparse\n"
    "parser = argparse.ArgumentParser()\nparser.add_argument('--epochs')\nparser.parse_args()\n",
    "script.sh": "echo never\n",
}
MISSING = "ModuleNotFoundError: No module named 'no_such_module_at_all'"
UNKNOWN = "train.py: error: unrecognized arguments: --rate 3"
RAISES = "def train():\n    raise ValueError('shapes (3, 4) and (5,)')\ntrain()\n"
# Files in a work folder are gone with the attempt; this counts by the queue's own variable.
DIFFERS = "import os; raise ValueError('flaky ' + 'abc'[int(os.environ['FORGE_ATTEMPT']) - 1])"
AFTER_PROGRESS = """
import json, os
with open(os.environ["FORGE_METRICS_FILE"], "a") as file:
    file.write(json.dumps({"step": 1, "loss": 0.5}) + "\\n")
import no_such_module_at_all
"""


def test_each_typo_is_run_once_and_named(both: Bed, tmp_path: Path) -> None:
    folder = _project(tmp_path)
    python = both.python
    typos = {
        ("no-such-command",): (127, "no-such-command: not found"),
        ("./script.sh",): (126, "Permission denied"),
        (python, "typo.py"): (1, "SyntaxError: invalid syntax"),
        (python, "missing.py"): (1, MISSING),
        (python, "trian.py"): (2, "trian.py': [Errno 2] No such file or directory"),
        (python, "-m", "trian"): (1, "No module named trian"),
        (python, "train.py", "--rate", "3"): (2, UNKNOWN),
        ("sh", "-c", "if true; then fi"): (2, "yntax error"),
    }
    jobs = {command: _submit(both, *command, folder=folder) for command in typos}
    both.worker()
    for command, job_id in jobs.items():
        row = both.ended(job_id)
        code, said = typos[command]
        assert (row["state"], row["exit_code"]) == ("failed", code), (command, row)
        assert said in row["detail"].splitlines()[0]
        assert both.reasons(job_id) == ["exit_code"]


def test_the_same_traceback_twice_is_final(process: Bed) -> None:
    job_id = _submit(process, process.python, "-c", RAISES)
    process.worker()
    row = process.ended(job_id)
    assert (row["state"], process.reasons(job_id)) == ("failed", ["exit_code"] * 2)
    first, *rest = row["detail"].splitlines()
    assert first == "failed the same way twice: ValueError: shapes (3, 4) and (5,)"
    assert rest[0] == "Traceback (most recent call last):"


def test_failures_that_differ_are_retried(process: Bed) -> None:
    job_id = _submit(process, process.python, "-c", DIFFERS)
    process.worker()
    process.ended(job_id)
    said = [row["detail"].splitlines()[0] for row in process.jobs.attempts(job_id)]
    assert said[:3] == [f"ValueError: flaky {letter}" for letter in "abc"]


def test_an_import_that_fails_after_progress_is_retried(process: Bed) -> None:
    job_id = _submit(process, process.python, "-c", AFTER_PROGRESS)
    process.worker()
    assert process.ended(job_id)["state"] == "dead"
    assert process.reasons(job_id) == ["exit_code"] * 4


def test_a_job_that_says_nothing_is_said_to_have_said_nothing(process: Bed) -> None:
    job_id = process.submit("sh", "-c", "exit 3")
    process.worker()
    assert _ended(process, job_id) == (3, "no output")


def test_a_job_that_was_killed_names_the_signal(both: Bed) -> None:
    # With an init of its own, the shell is not the one process that signals do not reach.
    killed = both.submit("sh", "-c", "echo step 5; kill -KILL $$")
    crashed = both.submit("sh", "-c", "kill -SEGV $$")
    both.worker()
    assert _ended(both, killed) == (
        128 + signal.SIGKILL,
        "killed by SIGKILL; last output: step 5",
    )
    assert _ended(both, crashed) == (128 + signal.SIGSEGV, "killed by SIGSEGV")


def test_a_secret_in_the_last_words_is_covered(process: Bed, tmp_path: Path) -> None:
    covered = "hunter2-hunter2"
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o700)
    (secrets / "API_KEY").write_text(covered)
    source = "import os; raise SystemExit('refused: ' + os.environ['API_KEY'])"
    job_id = process.script(source, secrets=["API_KEY"])
    process.worker(secrets_dir=secrets)
    assert _ended(process, job_id) == (1, f"refused: {'*' * len(covered)}")


def _submit(made: Bed, *command: str, folder: Path | None = None, **fields: Any) -> int:  # noqa: ANN401  fields of all types
    """Submit a job that leaves how often to retry to the queue."""
    digest = made.upload(folder) if folder else None
    spec = {"name": "job", "owner": "ann", "resources": SMALL, "backoff_s": 0, **fields}
    if digest:
        Uploads(made.database).add("ann", digest)
    return made.queue.submit([JobSpec(command=list(command), bundle_digest=digest, **spec)])[0]


def _project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in PROJECT.items():
        (folder / name).write_text(text)
    return folder


def _ended(made: Bed, job_id: int) -> tuple[int, str]:
    row: Row = made.ended(job_id)
    return row["exit_code"], row["detail"]
