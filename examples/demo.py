"""Run the digits example through its own complete Forge, and stop everything again.

Called by `make demo`. Everything lies in ./.demo afterwards, the trained model included.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from forge_client import Client, ClientError, Job
from forge_client.results.log_reader import LogPiece, follow
from forge_worker.files.safe_files import remove_tree
from psycopg.rows import dict_row
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".demo"
PROJECT = ROOT / "examples" / "digits"
FORGE = (sys.executable, "-m", "forge_client.main")
# A fifth of a second per epoch, so that there is something to watch.
COMMAND = ("python", "train.py", "--epochs", "30", "--seconds-per-epoch", "0.2")
START_S = 60
STOP_S = 60
GOOD = 0.95
HISTORY = """\
SELECT attempt, worker, reason, exit_code, round(waited_s::numeric, 3) AS waited_s,
       round(held_s::numeric, 3) AS held_s, accepted
FROM attempt_history
WHERE job_id = %(job_id)s
ORDER BY attempt"""

console = Console(highlight=False)


def main() -> int:
    """Show the life of a job; return 0 if it learned well enough."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began = time.monotonic()
    _clear()
    with _forge_up() as up, Client(up_dir=FOLDER) as client:
        _heading("a project is packed, stored and queued")
        job = client.job(_submit())
        _heading("a worker leases it and runs it; its output, live")
        _watch(client, job, up)
        accuracy = _fetch(job)
        _heading("its history, by SQL")
        _show_history(job)
    _heading("everything is stopped")
    took = time.monotonic() - began
    console.print(f"\n[bold]accuracy {accuracy:.3f}[/] after {took:.0f} s, all in all")
    console.print(f"the results lie in {FOLDER / 'results'}; the queue itself, with its history,")
    console.print(f"comes back with: forge up --dir {FOLDER}")
    return 0 if accuracy > GOOD else 1


def _clear() -> None:
    """Start afresh; a demo that was killed may have left its servers running."""
    if FOLDER.exists():
        down = [*FORGE, "down", "--dir", str(FOLDER)]
        subprocess.run(down, stderr=subprocess.DEVNULL, timeout=STOP_S * 3, check=False)  # noqa: S603
        # Environments of jobs are read-only.
        remove_tree(FOLDER)


@contextmanager
def _forge_up() -> Iterator[subprocess.Popen[bytes]]:
    _heading("$ forge up --dir .demo", raw=True)
    # As a process, which needs no image; FORGE_RUNNER and FORGE_DEFAULT_IMAGE change that.
    env = {"FORGE_RUNNER": "process", **os.environ}
    command = [*FORGE, "up", "--dir", str(FOLDER)]
    # In its own session, so that Ctrl-C reaches it only once, through the `finally` below.
    up = subprocess.Popen(command, env=env, start_new_session=True)  # noqa: S603
    try:
        _wait_for(up)
        yield up
    finally:
        up.terminate()
        up.wait(STOP_S)


def _wait_for(up: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while not (FOLDER / "connection.json").exists():
        if up.poll() is not None or time.monotonic() > deadline:
            sys.exit("forge up did not come up; what it said is above")
        time.sleep(0.1)


def _submit() -> int:
    shown = f"$ forge submit examples/digits -- {' '.join(COMMAND)}"
    console.print(shown, style="dim", markup=False, soft_wrap=True)
    command = [*FORGE, "--dir", str(FOLDER), "submit", str(PROJECT), "-o", "json", "--", *COMMAND]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)  # noqa: S603
    if done.returncode != 0:
        sys.exit(done.returncode)
    job_id: int = json.loads(done.stdout)["job_id"]
    return job_id


def _watch(client: Client, job: Job, up: subprocess.Popen[bytes]) -> None:
    columns = (TextColumn("job {task.fields[job]}"), BarColumn(), TaskProgressColumn())
    quiet = not console.is_terminal
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=quiet) as bar:
        task = bar.add_task("", total=1.0, job=job.id)
        for item in follow(client.backend, job.id):
            if isinstance(item, LogPiece):
                console.out(item.data.decode(errors="replace").rstrip("\n"), highlight=False)
            elif item.progress is not None or item.terminal:
                bar.update(task, completed=1.0 if item.terminal else item.progress)
            if up.poll() is not None:
                sys.exit("forge up ended before the job did")
    job.result()


def _fetch(job: Job) -> float:
    files = job.download(FOLDER / "results")
    result = json.loads((FOLDER / "results" / "result.json").read_text(encoding="utf-8"))
    console.print(f"fetched {', '.join(file.name for file in files)}")
    return float(result["accuracy"])


def _show_history(job: Job) -> None:
    console.print(
        HISTORY.replace("%(job_id)s", str(job.id)) + ";", style="dim", markup=False, soft_wrap=True
    )
    url = json.loads((FOLDER / "connection.json").read_text(encoding="utf-8"))["database_url"]
    with psycopg.connect(url, row_factory=dict_row) as connection:
        rows = connection.execute(HISTORY, {"job_id": job.id}).fetchall()
    table = Table(*rows[0], box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)


def _heading(text: str, *, raw: bool = False) -> None:
    console.print(f"\n{text}", style="dim" if raw else "bold", markup=False)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ClientError as error:
        sys.exit(f"{error}\n{error.hint}")
    except KeyboardInterrupt:
        sys.exit("interrupted; everything was stopped")
