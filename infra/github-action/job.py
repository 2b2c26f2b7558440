"""The steps of the action: submit a job, follow it, cancel it."""

import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

FORGE = Path(sys.executable).with_name("forge")
INTERRUPTED = 130
# A job that ended without an exit code of its own: cancelled, or its worker was lost too often.
NO_RESULT = 125


class Stopped(BaseException):
    """The workflow was cancelled."""


def submit() -> None:
    """Submit the job; its id is an output."""
    options = shlex.split(os.environ["JOB_OPTIONS"])
    command = shlex.split(os.environ["JOB_COMMAND"])
    words = [*options, "--", *command] if command else options
    made = forge("submit", os.environ["JOB_FOLDER"], *words, stdout=subprocess.PIPE)
    if made.returncode:
        fail("the job was not submitted", made.returncode)
    job_id = made.stdout.strip()
    output("job-id", job_id)
    page = f"{os.environ['FORGE_URL'].rstrip('/')}/jobs/{job_id}"
    note("GITHUB_STEP_SUMMARY", f"[Forge job {job_id}]({page})")
    print(f"::notice title=Forge job {job_id}::{page}")


def follow() -> None:
    """Print the job's output as it arrives, and exit as the job did."""
    job_id = os.environ["JOB_ID"]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        _print_output(job_id)
        ended = status(job_id)
    except Stopped:
        # GitHub kills what is left of a cancelled workflow after a few seconds.
        cancel()
        sys.exit(INTERRUPTED)
    state, code = ended["state"], ended["exit_code"]
    state = {"dead": "failed"}.get(state, state)
    output("state", state)
    output("exit-code", "" if code is None else str(code))
    if state != "succeeded":
        detail = (ended["detail"] or ended["reason"] or "").splitlines()
        fail(f"job {job_id} {state}: {detail[0] if detail else 'no reason'}", code or NO_RESULT)


def cancel() -> None:
    """Cancel the job, unless it has ended."""
    forge("cancel", os.environ["JOB_ID"])


def status(job_id: str) -> dict[str, Any]:
    """Return the job as `forge show` has it."""
    shown = forge("show", job_id, "-o", "json", stdout=subprocess.PIPE)
    if shown.returncode:
        fail(f"the state of job {job_id} is unknown", shown.returncode)
    found: dict[str, Any] = json.loads(shown.stdout)["job"]
    return found


def _print_output(job_id: str) -> None:
    # A job must not command the runner by what it prints.
    word = secrets.token_hex(16)
    print(f"::stop-commands::{word}", flush=True)
    with subprocess.Popen([FORGE, "logs", "--follow", job_id]) as logs:
        try:
            code = logs.wait()
        except Stopped:
            logs.terminate()
            raise
        finally:
            print(f"::{word}::", flush=True)
    if code:
        fail(f"the output of job {job_id} cannot be followed; it keeps running", code)


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    # Once is enough: what follows must come to its end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise Stopped


def forge(*words: str, stdout: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command; what it says goes to the step's log."""
    return subprocess.run([FORGE, *words], stdout=stdout, text=True, check=False)


def output(name: str, value: str) -> None:
    """Set an output of the step."""
    note("GITHUB_OUTPUT", f"{name}={value}")


def note(variable: str, line: str) -> None:
    """Add a line to one of the runner's files."""
    with Path(os.environ[variable]).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def fail(message: str, code: int) -> NoReturn:
    """Fail the step, with an annotation of the workflow."""
    said = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    print(f"::error title=Forge::{said}")
    # Of a signal, the code is negative; a shell has a number for it.
    sys.exit(128 - code if code < 0 else code)


if __name__ == "__main__":
    {"submit": submit, "follow": follow, "cancel": cancel}[sys.argv[1]]()
