"""`forge up` in the background, and how it is stopped from outside."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from forge_client import running
from forge_client.errors import ClientError
from forge_client.exit_codes import ExitCode
from forge_client.local.lock import already_running, holder
from forge_client.local.plan import Plan
from forge_client.running import Running

LOOK_S = 0.05
START_S = 180.0
STOP_S = 180.0


def start_detached(plan: Plan) -> Running:
    """Start a `forge up` that outlives this process, and return once it is up.

    Raises:
        ClientError: it did not come up, or one runs there already.
    """
    if (pid := holder(plan.dir)) is not None:
        raise already_running(plan.dir, str(pid))
    logs = plan.dir / "logs"
    plan.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    logs.mkdir(exist_ok=True)
    log = logs / "up.log"
    with log.open("wb") as file:
        child = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", "forge_client.main", "up", *_options(plan)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and child.poll() is None:
        try:
            found = running.find(plan.dir)
        except ClientError:
            found = None
        if found is not None and found.pid == child.pid:
            return found
        time.sleep(LOOK_S)
    raise _not_up(child, log)


def _options(plan: Plan) -> list[str]:
    options = ["--dir", str(plan.dir), "--workers", str(plan.workers)]
    options += ["--cpus", str(plan.cpus)] if plan.cpus else []
    options += ["--port", str(plan.port)] if plan.port else []
    return options + (["--memory", f"{plan.memory_mb}MB"] if plan.memory_mb else [])


def _not_up(child: subprocess.Popen[bytes], log: Path) -> ClientError:
    status = child.poll()
    if status is None:
        child.terminate()
    said = log.read_text("utf-8", errors="replace").strip()
    return ClientError(
        f"it did not come up:\n{said}",
        hint=f"its output is in {log}",
        code="up_failed",
        exit_code=status or ExitCode.FAILED,
    )


def stop(folder: Path, *, drain: bool) -> None:
    """Stop the `forge up` of a folder and wait until it is gone.

    Raises:
        ClientError: none runs there, or it does not stop.
    """
    pid = holder(folder)
    if pid is None:
        raise ClientError(
            f"no `forge up` runs in {folder}",
            hint="name its folder with --dir",
            code="not_running",
            exit_code=ExitCode.UNREACHABLE,
        )
    os.kill(pid, signal.SIGINT if drain else signal.SIGTERM)
    deadline = float("inf") if drain else time.monotonic() + STOP_S
    while holder(folder) == pid:
        if time.monotonic() > deadline:
            raise ClientError(
                f"the `forge up` of {folder}, process {pid}, does not stop",
                hint=f"its output may say why; `kill -9 {pid}` ends it, and loses no job",
                code="does_not_stop",
            )
        time.sleep(LOOK_S)
