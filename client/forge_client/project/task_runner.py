"""Run the tasks of a job one after another, and keep a record of each that ended.

This file travels in the job's bundle, so it imports only the standard library of Python 3.8 on. The
records are in the checkpoint folder, so the next attempt goes on with the tasks that have none, or
that failed, and in the job's result, where the queue finds them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS = "forge_tasks"
FILE = "forge-tasks.json"
# The queue's limit of a result, less what the names around the records take.
MOST_BYTES = 250 << 10
MOST_METRICS = 64
SUCCEEDED, FAILED = "succeeded", "failed"
# Of a call's result: the exception.
RAISED = "raised"
# Of a metrics file: what is about its lines.
ABOUT = ("step", "total", "progress")
# How often records are written, and the most of the time that this may take.
PERIOD_S, SHARE = 1.0, 20
NAMED = 10
TOO_LARGE = "its result is too large for the job's"
# A retry would only repeat this: the queue looks for these words in the last line.
AS_BEFORE = "failed as before"
# What differs between two tracebacks of one kind.
VARYING = re.compile(r"\btmp\w+|[0-9a-f]*[0-9][0-9a-f]*", re.IGNORECASE)
# What a job that is asked to stop may get; each reaches all of its processes.
STOPS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
_stopped: list[int] = []
_commands: list[str] = []


class TaskFailed(Exception):
    """A task failed; `said` is what is kept of that."""

    def __init__(self, why: str, result: Any = None) -> None:  # noqa: ANN401 - whatever JSON has
        super().__init__(why)
        self.result = result


class TaskRecords:
    """The tasks of the job in order, each with its `state` once it has ended."""

    def __init__(self, tasks: list[dict[str, Any]]) -> None:
        self._folder = os.environ["FORGE_CHECKPOINT_DIR"]
        self._result = os.environ["FORGE_RESULT_FILE"]
        self._metrics = os.environ.get("FORGE_METRICS_FILE")
        self.tasks = tasks
        with contextlib.suppress(OSError, ValueError):
            for task, kept in zip(self.tasks, _read(os.path.join(self._folder, FILE))):  # noqa: B905, PTH118 - Python 3.8 has no `strict`; as short as it can be
                task.update(kept)
        self._due_s = 0.0

    def keep(self, *, now: bool = False) -> None:
        """Write the records, if the last time was a while ago."""
        began_s = time.monotonic()
        if began_s < self._due_s and not now:
            return
        whole = json.dumps(self.tasks)
        _replace(os.path.join(self._folder, FILE), whole)  # noqa: PTH118 - as short as it can be
        _replace(self._result, json.dumps({RECORDS: _fitting(self.tasks, len(whole))}))
        if self._metrics:
            # Progress alone: a metric is the work's own, and lists show it as a result.
            line = {"step": sum("state" in task for task in self.tasks), "total": len(self.tasks)}
            with open(self._metrics, "a", encoding="utf-8") as file:  # noqa: PTH123 - as above
                file.write(json.dumps(line) + "\n")
        ended_s = time.monotonic()
        self._due_s = ended_s + max(PERIOD_S, SHARE * (ended_s - began_s))

    def failed(self) -> list[int]:
        """Return the numbers of the tasks that failed."""
        return [n for n, task in enumerate(self.tasks) if task.get("state") == FAILED]


def run(tasks: list[dict[str, Any]], call: Callable[[int], Any]) -> NoReturn:
    """Run every task that has not succeeded yet, and exit with 1 if one failed.

    Args:
        tasks: their names and parameters.
        call: runs one by its number and returns its result; raises `TaskFailed`.
    """
    for name in STOPS:
        signal.signal(getattr(signal, name), _leave)
    records = TaskRecords(tasks)
    before = [_way(task) for task in tasks]
    places = {name: os.environ[name] for name in ("FORGE_CHECKPOINT_DIR", "FORGE_OUTPUT_DIR")}
    try:
        for number, task in enumerate(tasks):
            if task.get("state") != SUCCEEDED:
                os.environ.update(_variables(number, task))
                task.update(_ended(number, call, places))
                records.keep()
    finally:
        records.keep(now=True)
    failed = records.failed()
    if failed:
        names = ", ".join(map(str, failed[:NAMED])) + ", …" * (len(failed) > NAMED)
        did = AS_BEFORE if before == [_way(task) for task in tasks] else FAILED
        print(f"{len(failed)} of {len(tasks)} tasks {did}: {names}", file=sys.stderr)  # noqa: T201 - the job's log
    sys.exit(1 if failed else 0)


def _way(task: dict[str, Any]) -> object:
    """Return how a task ended. A failure that says too little is like no other one."""
    if task.get("state") != FAILED:
        return task.get("state")
    raised = (task.get("result") or {}).get(RAISED)
    return VARYING.sub("", raised["traceback"]) if raised else object()


def _leave(number: int, _frame: object) -> None:
    """Leave the task that runs to the next attempt; a command has its time to save its state."""
    _stopped.append(number)
    if not _commands:
        sys.exit(128 + number)


def _variables(number: int, task: dict[str, Any]) -> dict[str, str]:
    """Return the variables that tell a task its number and its parameters, as a job's do."""
    given = task.get("parameters") or {}
    own = {
        f"FORGE_PARAM_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
        for name, value in given.items()
    }
    return dict(own, FORGE_TASK=str(number), FORGE_PARAMETERS=json.dumps(given))


def _ended(number: int, call: Callable[[int], Any], places: dict[str, str]) -> dict[str, Any]:
    """Run a task in files and folders of its own, and return its end."""
    own = os.path.join(places["FORGE_CHECKPOINT_DIR"], f"task-{number}")  # noqa: PTH118 - as above
    metrics = own + ".metrics"
    os.environ["FORGE_METRICS_FILE"] = metrics
    for name, place in places.items():
        os.environ[name] = os.path.join(place, f"task-{number}")  # noqa: PTH118 - as above
        os.makedirs(os.environ[name], exist_ok=True)  # noqa: PTH103 - as above
    began_s = time.monotonic()
    end: dict[str, Any] = {"state": SUCCEEDED, "detail": None}
    try:
        end["result"] = call(number)
    except TaskFailed as error:
        print(f"task {number} failed: {error}", file=sys.stderr)  # noqa: T201 - the job's log
        end.update(state=FAILED, result=error.result, detail=str(error)[:1000])
    end.update(seconds=round(time.monotonic() - began_s, 6), metrics=_summary(metrics))
    shutil.rmtree(own, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.remove(metrics)  # noqa: PTH107 - as above
    with contextlib.suppress(OSError):
        os.rmdir(os.environ["FORGE_OUTPUT_DIR"])  # noqa: PTH106 - as above; others are not empty
    return end


def _summary(path: str) -> dict[str, dict[str, float]]:
    """Return the last, the least and the greatest value of each metric in a file."""
    metrics: dict[str, dict[str, float]] = {}
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
        for line in file:
            for key, value in _numbers(line):
                if key in metrics or len(metrics) < MOST_METRICS:
                    of_key = metrics.setdefault(key, {"min": value, "max": value})
                    least, most = min(of_key["min"], value), max(of_key["max"], value)
                    of_key.update(last=value, min=least, max=most)
    return metrics


def _numbers(line: str) -> list[Any]:
    try:
        values = json.loads(line)
    except ValueError:
        return []
    return [
        (key, float(value))
        for key, value in (values.items() if isinstance(values, dict) else ())
        if key not in ABOUT and type(value) in (int, float) and isfinite(value)
    ]


def _fitting(tasks: list[dict[str, Any]], size: int) -> list[dict[str, Any]]:
    """Return the records with the largest results left out, if all are too long for a row."""
    if size <= MOST_BYTES:
        return tasks
    sizes = sorted(((len(json.dumps(task)), n) for n, task in enumerate(tasks)), reverse=True)
    fitting = list(tasks)
    for length, number in sizes:
        if size <= MOST_BYTES:
            break
        fitting[number] = dict(tasks[number], result=None, metrics={}, detail=TOO_LARGE)
        size -= length - len(json.dumps(fitting[number]))
    return fitting


def _read(path: str) -> Any:  # noqa: ANN401 - whatever JSON has
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - as above
        return json.load(file, parse_constant=lambda _name: None)


def _replace(path: str, text: str) -> None:
    # Whoever looks meanwhile reads the old file.
    with open(path + ".new", "w", encoding="utf-8") as file:  # noqa: PTH123 - as above
        file.write(text)
    os.replace(path + ".new", path)  # noqa: PTH105 - as above


def command(words: list[str]) -> dict[str, Any] | None:
    """Run a task that is a command, and return what it wrote to its $FORGE_RESULT_FILE."""
    result = os.path.abspath(os.environ["FORGE_CHECKPOINT_DIR"]) + ".result"  # noqa: PTH100 - as above
    with contextlib.suppress(OSError):
        os.remove(result)  # noqa: PTH107 - as above
    try:
        # Said first: a stop must not find a command that nobody waits for.
        _commands.append(words[0])
        with subprocess.Popen(words, env=dict(os.environ, FORGE_RESULT_FILE=result)) as child:  # noqa: S603 - the submitter's own
            code = child.wait()
    except OSError as error:
        raise TaskFailed(f"{words[0]}: {error.strerror}") from None
    finally:
        _commands.clear()
    if _stopped:
        sys.exit(128 + _stopped[0])
    try:
        record = _object(result)
    finally:
        with contextlib.suppress(OSError):
            os.remove(result)  # noqa: PTH107 - as above
    if code:
        raise TaskFailed(f"exit code {code}", record)
    return record


def _object(path: str) -> dict[str, Any] | None:
    with contextlib.suppress(OSError, ValueError):
        value = _read(path)
        return value if isinstance(value, dict) else None
    return None


def main() -> NoReturn:
    """Run the commands in the file beside this one that the command line names."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - as above
    tasks = _read(os.path.join(here, f"{sys.argv[1]}.json"))  # noqa: PTH118 - as above
    commands = [task.pop("command") for task in tasks]
    run(tasks, lambda number: command(commands[number]))


if __name__ == "__main__":
    main()
