"""The steps of the action: submit a job, follow it, cancel it."""

import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

FORGE = Path(sys.executable).with_name("forge")
INTERRUPTED = 130
USAGE = 2
# A job that ended without an exit code of its own: cancelled, or its worker was lost too often.
NO_RESULT = 125
# GitHub kills what is left of a cancelled step after ten seconds.
SUBMIT_S, LOGS_S = 4, 2
# The action follows the job itself, and reads its id.
OURS = ("--wait", "--dry-run", "--output", "-o", "--")

Handler = Callable[[int, FrameType | None], Any] | signal.Handlers


class Stopped(BaseException):
    """The workflow was cancelled."""


def submit() -> None:
    """Submit the job; its id is an output."""
    words = [os.environ["JOB_FOLDER"], *_options(), "-o", "json", *_command()]
    stopped: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        stopped.append(number)
        signal.alarm(SUBMIT_S)

    _on_signals(stop)
    code, answer, said = _submitted(words)
    job_id = _id_in(answer) if code == 0 else None
    if job_id is None:
        why = "the workflow was cancelled" if stopped else _reason(said)
        fail(f"the job was not submitted: {why}", INTERRUPTED if stopped else code or 1)
    output("job-id", job_id)
    page = f"{os.environ['FORGE_URL'].rstrip('/')}/jobs/{job_id}"
    note("GITHUB_STEP_SUMMARY", f"[Forge job {job_id}]({page})")
    print(f"::notice title=Forge job {job_id}::{page}", flush=True)
    if stopped:
        cancel(job_id)
        sys.exit(INTERRUPTED)


def _submitted(words: list[str]) -> tuple[int, str, list[str]]:
    """Return how `forge submit` ended, what it answered, and what it said meanwhile.

    A signal does not end it at once: a job that is submitted must be known to be cancelled.
    """
    said: list[str] = []
    with (
        quiet(),
        tempfile.TemporaryFile("w+") as answer,
        subprocess.Popen(
            [FORGE, "submit", *words],
            stdout=answer,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as forge,
    ):
        signal.signal(signal.SIGALRM, lambda _number, _frame: _kill_all(forge))
        for line in forge.stderr or ():
            print(line, end="", flush=True)
            said.append(line)
        code = forge.wait()
        answer.seek(0)
        return code, answer.read(), said


def _kill_all(forge: subprocess.Popen[str]) -> None:
    if forge.poll() is None:
        os.killpg(forge.pid, signal.SIGKILL)


def _options() -> list[str]:
    options = _words("options", os.environ["JOB_OPTIONS"])
    for word in options:
        name = word.partition("=")[0]
        if name in OURS or (name.startswith("-o") and not name.startswith("--")):
            instead = {
                "--wait": ": the input follow is for that",
                "--": ": the input command is for that",
            }
            fail(f"options cannot have {name}{instead.get(name, '')}", USAGE)
    return options


def _command() -> list[str]:
    command = _words("command", os.environ["JOB_COMMAND"])
    return ["--", *command] if command else []


def _words(name: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        fail(f"the input {name} cannot be split into words: {error}", USAGE)


def _id_in(answer: str) -> str | None:
    try:
        job_id = json.loads(answer)["job_id"]
    except (ValueError, KeyError, TypeError):
        return None
    return str(job_id) if type(job_id) is int else None


def _reason(said: list[str]) -> str:
    """Return the error that the command ended with."""
    errors = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
    return errors[-1].strip() if errors else "its answer has no job's id"


def follow() -> None:
    """Print the job's output as it arrives, and exit as the job did."""
    job_id = os.environ["JOB_ID"]
    _on_signals(_stop)
    try:
        _print_output(job_id)
        ended = status(job_id)
    except Stopped:
        cancel(job_id)
        sys.exit(INTERRUPTED)
    if ended is None:
        fail(f"the state of job {job_id} is unknown", 1)
    state, code = tell(ended), ended["exit_code"]
    if state != "succeeded":
        detail = (ended["detail"] or ended["reason"] or "").splitlines()
        fail(f"job {job_id} {state}: {detail[0] if detail else 'no reason'}", code or NO_RESULT)


def cancel(job_id: str) -> None:
    """Cancel the job, unless it has ended; what becomes of it is an output."""
    with quiet():
        subprocess.run([FORGE, "cancel", job_id], check=False)
    if found := status(job_id):
        tell(found if found["finished_at"] else {**found, "state": "cancelled"})


def status(job_id: str) -> dict[str, Any] | None:
    """Return the job as `forge show` has it; None if nothing answers."""
    with quiet():
        shown = subprocess.run(
            [FORGE, "show", job_id, "-o", "json"], stdout=subprocess.PIPE, text=True, check=False
        )
    return None if shown.returncode else json.loads(shown.stdout)["job"]


def tell(job: dict[str, Any]) -> str:
    """Set the outputs of a job that ended, and return its state."""
    state, code = {"dead": "failed"}.get(job["state"], job["state"]), job["exit_code"]
    output("state", state)
    output("exit-code", "" if code is None else str(code))
    return str(state)


def _print_output(job_id: str) -> None:
    print(f"::group::The output of job {job_id}", flush=True)
    try:
        with quiet(), subprocess.Popen([FORGE, "logs", "--follow", job_id]) as logs:
            try:
                code = logs.wait()
            except Stopped:
                _end(logs)
                raise
    finally:
        print("::endgroup::", flush=True)
    if code:
        fail(f"the output of job {job_id} cannot be followed; it keeps running", code)


def _end(logs: subprocess.Popen[bytes]) -> None:
    logs.terminate()
    try:
        logs.wait(LOGS_S)
    except subprocess.TimeoutExpired:
        logs.kill()


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    # Once is enough: what follows must come to its end.
    _on_signals(signal.SIG_IGN)
    raise Stopped


def _on_signals(handler: Handler) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


@contextmanager
def quiet() -> Iterator[None]:
    """Take no commands from what is printed meanwhile: a job must not command the runner."""
    word = secrets.token_hex(16)
    print(f"::stop-commands::{word}", flush=True)
    try:
        yield
    finally:
        print(f"::{word}::", flush=True)


def output(name: str, value: str) -> None:
    """Set an output of the step."""
    note("GITHUB_OUTPUT", f"{name}={value}")


def note(variable: str, line: str) -> None:
    """Add a line to one of the runner's files."""
    with Path(os.environ[variable]).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def annotate(level: str, message: str) -> None:
    """Add an annotation to the workflow."""
    said = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    print(f"::{level} title=Forge::{said}", flush=True)


def fail(message: str, code: int) -> NoReturn:
    """Fail the step, with an annotation of the workflow."""
    annotate("error", message)
    # Of a signal, the code is negative; a shell has a number for it.
    sys.exit(128 - code if code < 0 else code)


if __name__ == "__main__":
    match sys.argv[1]:
        case "submit":
            submit()
        case "follow":
            follow()
        case "cancel":
            cancel(os.environ["JOB_ID"])
