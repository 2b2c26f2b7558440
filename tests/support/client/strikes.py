"""Ways to interrupt a job of a `forge up`, from a signal to the loss of its machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from forge_client import Client
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.client.command import Command


def preempt(forge: Command, job: int) -> None:
    """Preempt the job as an operator would."""
    with Client(up_dir=forge.env["FORGE_DIR"]) as client:
        client.job(job).preempt()


def kill_program(forge: Command, job: int) -> None:
    """Kill the job's programs, and leave its worker alone."""
    for process in _on_the_worker(forge):
        with suppress(psutil.Error):
            if process.environ().get("FORGE_JOB_ID") == str(job):
                process.kill()


def kill_agent(forge: Command, _job: int) -> None:
    """Kill the worker's own process, and leave the job alone."""
    with suppress(ProcessLookupError):
        os.kill(_agent(forge), signal.SIGKILL)


def lose_machine(forge: Command, _job: int) -> None:
    """Kill the worker and its jobs at once, and remove all that they had on disk."""
    with _no_replacement(forge):
        doomed = _on_the_worker(forge)
        with suppress(psutil.NoSuchProcess):
            agent = psutil.Process(_agent(forge))
            doomed += [agent, *agent.children(recursive=True)]
        for process in doomed:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        eventually(lambda: not [one for one in doomed if _lives(one)])
        for folder in _workers(forge).iterdir():
            shutil.rmtree(folder)


STRIKES: dict[str, Callable[[Command, int], None]] = {
    "program killed": kill_program,
    "preempted": preempt,
    "agent killed": kill_agent,
    "machine lost": lose_machine,
}


def _workers(forge: Command) -> Path:
    return Path(forge.env["FORGE_DIR"], "workers")


def _agent(forge: Command) -> int:
    (noted,) = _workers(forge).glob("*/pid")
    return int(noted.read_text(encoding="utf-8").split()[0])


def _on_the_worker(forge: Command) -> list[psutil.Process]:
    """Find the processes that work below the workers' folder, whoever their parents are now."""
    below = str(_workers(forge))
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cwd().startswith(below) or below in " ".join(process.cmdline()):
                found.append(process)
    return found


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


@contextmanager
def _no_replacement(forge: Command) -> Iterator[None]:
    """Hold up the process that starts a new worker as soon as the old one has died."""
    connection = Path(forge.env["FORGE_DIR"], "connection.json")
    up = json.loads(connection.read_text(encoding="utf-8"))["pid"]
    os.kill(up, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(up, signal.SIGCONT)
