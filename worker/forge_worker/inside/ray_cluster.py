"""What each member of a gang runs when `ray` is its launcher.

Rank 0 starts the cluster, runs the job's command once all machines have joined, and ends the
cluster with it. The other members join, and keep their part for as long as rank 0 has the cluster's
head: a program that is told to stop can still fetch the state of its actors.

This file runs with any Python from 3.8 on, so it imports only the standard library.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

JOIN_S, RETRY_S, TURN_S = 120.0, 1.0, 0.2
# A head that answers nothing for so long is gone.
SILENCE_S = 5.0
# For Ray's processes to end, and for a command whose cluster has died.
END_S, NOTICE_S = 10.0, 30.0
# Forge stops a member at once if rank 0 has ended, or once its worker counts as lost.
STOPPED_S = 300.0
LAST_LINES = 10
BY_SIGNAL = 128
# A shell's exit codes.
NOT_FOUND, NOT_EXECUTABLE = 127, 126
PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
# Once it is told to stop, `ray start --block` would ask the head for 30 s whether it may.
AT_ONCE = {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
COUNT = (
    "import ray; ray.init(log_to_driver=False, logging_level='ERROR');"
    " alive = sum(node['Alive'] for node in ray.nodes());"
    " raise SystemExit(0 if alive >= {0} else f'{{alive}} of {0} machines have joined')"
)


class RaySignals:
    """The signals to this program: the last one, and the process to which each is passed on."""

    def __init__(self) -> None:
        self.number = 0
        self.passed_to: subprocess.Popen[bytes] | None = None
        for name in PASSED_ON:
            signal.signal(getattr(signal, name), self._heard)

    def _heard(self, number: int, _: Any) -> None:  # noqa: ANN401  a frame
        self.number = number
        if self.passed_to is not None and self.passed_to.poll() is None:
            self.passed_to.send_signal(number)


def head(nodes: int, options: list[str], command: list[str]) -> int:
    """Start the cluster, run the command on it, and return the command's exit code."""
    stopping = RaySignals()
    address, port = place()
    if has_client():
        # Otherwise it is the same for all clusters of a machine.
        options = [*options, f"--ray-client-server-port={free_port()}"]
    ray = started(["--head", f"--port={port}", "--include-dashboard=false", *options])
    try:
        count = ["python3", "-c", COUNT.format(nodes)]
        failure = f"not all machines joined the Ray cluster {address}:{port}"
        if code := joined(count, failure, ray, stopping):
            return code
        return ran(command, ray, stopping)
    finally:
        ended(ray)


def ran(command: list[str], ray: subprocess.Popen[bytes], stopping: RaySignals) -> int:
    """Run the command to its end; if the cluster dies, have it stop."""
    try:
        process = subprocess.Popen(command)  # noqa: S603  the job's own words
    except OSError as error:
        reason = "not found" if isinstance(error, FileNotFoundError) else error
        sys.stderr.write(f"forge: {command[0]}: {reason}\n")
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    stopping.passed_to = process
    if stopping.number:
        process.send_signal(stopping.number)
    while (code := waited(process)) is None:
        if ray.poll() is not None:
            process.terminate()
            waited(process, NOTICE_S)
            process.kill()
            sys.stderr.write(f"Ray's processes on rank 0 ended: {in_words(ray.returncode)}\n")
            return 1
    return code if code >= 0 else BY_SIGNAL - code


def member(options: list[str]) -> int:
    """Join the cluster, and leave it when told to and the head is gone."""
    stopping = RaySignals()
    address, port = place()
    cluster = f"{address}:{port}"
    check = ["ray", "health-check", f"--address={cluster}"]
    failure = f"the Ray head {cluster} does not answer"
    if unable := joined(check, failure, None, stopping):
        return unable
    ray = started([f"--address={cluster}", *options])
    try:
        while (code := waited(ray)) is None:
            if stopping.number and not answers():
                return BY_SIGNAL + stopping.number
    finally:
        ended(ray)
    if not answers():
        # Only rank 0 decides how the run ends.
        until = time.monotonic() + STOPPED_S
        while not stopping.number and time.monotonic() < until:
            time.sleep(TURN_S)
        return BY_SIGNAL + stopping.number
    sys.stderr.write(f"Ray's processes on this machine ended: {in_words(code)}\n")
    return code if code > 0 else 1


def joined(
    check: list[str], failure: str, ray: subprocess.Popen[bytes] | None, stopping: RaySignals
) -> int:
    """Repeat a check until it succeeds, and return 0; otherwise say why it did not."""
    until, output = time.monotonic() + JOIN_S, b""
    while time.monotonic() < until:
        if stopping.number:
            return BY_SIGNAL + stopping.number
        if ray is not None and ray.poll() is not None:
            return ray.returncode if ray.returncode > 0 else 1
        if answers():
            code, output = checked(check, stopping)
            if code == 0:
                return 0
        time.sleep(RETRY_S)
    last = output.decode(errors="replace").strip().splitlines()[-LAST_LINES:]
    sys.stderr.write("\n".join([*last, f"{failure}: {last[-1] if last else 'no connection'}\n"]))
    return 1


def checked(check: list[str], stopping: RaySignals) -> tuple[int | None, bytes]:
    """Return the exit code and the output of a check; none if this program is told to stop."""
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(check, stdout=pipe, stderr=both) as process:  # noqa: S603  our own words
        while not stopping.number:
            with suppress(subprocess.TimeoutExpired):
                output = process.communicate(timeout=TURN_S)[0]
                return process.returncode, output
        process.kill()
    return None, b""


def started(words: list[str]) -> subprocess.Popen[bytes]:
    """Start Ray's processes of this machine in a folder of the job's own."""
    place = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  as Ray
    whole = ["ray", "start", "--block", f"--temp-dir={place}/ray", *words]
    return subprocess.Popen(whole, env={**os.environ, **AT_ONCE})  # noqa: S603  our own words


def ended(ray: subprocess.Popen[bytes]) -> None:
    """Have Ray's processes of this machine end: some of them do not on a SIGTERM."""
    rest = below(ray.pid)
    if ray.poll() is None:
        ray.terminate()
        waited(ray, END_S)
    ray.kill()
    for pid, began in rest.items():
        # Its number may be another's by now.
        if processes().get(pid, (0, ""))[1] == began:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def below(root: int) -> dict[int, str]:
    """Return the processes below one, each with the time at which it began."""
    known, pids = processes(), {root}
    while more := {pid for pid, (parent, _) in known.items() if parent in pids} - pids:
        pids |= more
    return {pid: known[pid][1] for pid in pids - {root}}


def processes() -> dict[int, tuple[int, str]]:
    """Return the parent of each process, and the time at which it began."""
    known: dict[int, tuple[int, str]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            words = stat.read_text(errors="replace").rpartition(")")[2].split()
            known[int(stat.parent.name)] = (int(words[1]), words[19])
    return known


def waited(process: subprocess.Popen[bytes], seconds: float = TURN_S) -> int | None:
    """Return the exit code of a process, or None if it still runs after some seconds."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(seconds)
    return None


def answers() -> bool:
    """Return whether somebody listens at the head's port."""
    try:
        socket.create_connection(place(), timeout=SILENCE_S).close()
    except OSError:
        return False
    return True


def place() -> tuple[str, int]:
    """Return where the head listens."""
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def has_client() -> bool:
    """Return whether this Ray starts a server for its client; without one, it refuses the port."""
    check = ["python3", "-c", "import grpc, ray.util.client"]
    return subprocess.run(check, stderr=subprocess.DEVNULL, check=False).returncode == 0  # noqa: S603  fixed


def free_port() -> int:
    """Return a port that is free now."""
    with socket.create_server((place()[0], 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def in_words(code: int) -> str:
    """Return how a process ended."""
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"


def main() -> None:
    """Be rank 0 (`head NODES OPTIONS… -- COMMAND…`) or another rank (`member OPTIONS…`)."""
    role, *words = sys.argv[1:]
    if role == "head":
        end = words.index("--")
        sys.exit(head(int(words[0]), words[1:end], words[end + 1 :]))
    sys.exit(member(words))


if __name__ == "__main__":
    main()
