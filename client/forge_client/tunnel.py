"""OpenSSH's programs in a running job, with `forge ssh --stdio` as their connection."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_state_path

from forge_client.errors import ClientError, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from forge_client.backend import Backend

LOOPBACK = "127.0.0.1"
# What would start something in a shell.
SHELL = "$`;&|()<>"
HOST = re.compile(r"job-(\d+)(?:-(\d+))?")
# The folder that it runs in has nothing to do with it.
FORGE = [sys.executable, "-P", "-m", "forge_client.main"]
# They name a connection; another `forge` must get exactly one.
PLACES = ("URL", "API_KEY", "API_KEY_FILE", "DATABASE_URL", "STORE_URL", "OWNER")
PUBLIC_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]{68}(?: [ -~]*)?")
READY = "ready"
# What refuses a connection does so sooner, and what takes it says nothing first.
LOOK_S = 1.0
# Each connection has a new key, and connections may begin at the same time.
KEPT_KEYS = 100


def host(job_id: int, rank: int = 0) -> str:
    """Return the name of a job as ssh sees it."""
    return f"job-{job_id}-{rank}" if rank else f"job-{job_id}"


def named(name: str) -> tuple[int, int]:
    """Return the job and the rank that ssh calls by a name.

    Raises:
        ClientError: it is not such a name.
    """
    match = HOST.fullmatch(name)
    if match is None:
        raise InvalidInput(
            f"{name!r} is not a job's name for ssh", hint="write job-7, or job-7-1 for its rank 1"
        )
    return int(match[1]), int(match[2] or 0)


def pin(name: str, key: str) -> None:
    """Have ssh accept this public key, and no key of longer ago, for a job.

    Raises:
        ClientError: the worker sent something else, which might be lines for other hosts.
    """
    if not PUBLIC_KEY.fullmatch(key):
        raise ClientError(
            f"the worker of {name} sent no key of an SSH server",
            hint="update the worker; if it is a stranger's, do not trust it",
            code="host_key_invalid",
        )
    known = _known_hosts()
    known.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with known.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lines = known.read_text().splitlines() if known.exists() else []
        partial = known.with_suffix(".partial")
        partial.write_text("\n".join([*lines[-KEPT_KEYS:], f"{name} {key}", ""]))
        partial.replace(known)


def _known_hosts() -> Path:
    return user_state_path("forge") / "known_hosts"


def options(forge: Sequence[str], name: str, ports: Sequence[int] = ()) -> dict[str, str]:
    """Return the options with which ssh reaches a job; `forge` is the command to connect with."""
    wanted = [word for port in ports for word in ("--tunnel", str(port))]
    proxy = shlex.join([*forge, "ssh", *wanted, "--stdio"]).replace("%", "%%")
    return {
        "ProxyCommand": f"{proxy} {name}",
        "User": "job",
        "UserKnownHostsFile": f'"{_known_hosts()}"',
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "HostKeyAlgorithms": "ssh-ed25519",
        "UpdateHostKeys": "no",
        "CheckHostIP": "no",
        "PubkeyAuthentication": "no",
        "ForwardAgent": "no",
        "ForwardX11": "no",
    }


def config(forge: Sequence[str], also: Iterable[str] = ()) -> str:
    """Return a section for ~/.ssh/config that makes `ssh job-7`, and other names, work."""
    lines = [f"  {name} {value}" for name, value in options(forge, "%h").items()]
    # ssh gives the name to a shell, as it was typed or written by somebody else.
    hosts = " ".join(["job-*", *also, *(f"!*{mark}*" for mark in SHELL)])
    return "\n".join([f"Host {hosts}", *lines])


def command(name: str, *words: str, ports: Sequence[int] = ()) -> list[str]:
    """Return the command that runs ssh to a job; `words`, options too, come after its name.

    Raises:
        ClientError: ssh is not installed.
    """
    ssh = shutil.which("ssh")
    if ssh is None:
        raise ClientError(
            "the command ssh is not installed",
            hint="install OpenSSH's client (Debian: openssh-client)",
            code="extra_missing",
        )
    # A connection that another server's job of this number has left open must not be used.
    chosen = {**options(FORGE, name, ports), "ControlPath": "none"}
    given = [word for option, value in chosen.items() for word in ("-o", f"{option}={value}")]
    return [ssh, *given, name, *words]


def environment(backend: Backend) -> Mapping[str, str]:
    """Return the variables of a process that reaches Forge as a backend does."""
    places = {f"FORGE_{place}" for place in PLACES}
    kept = {name: value for name, value in os.environ.items() if name not in places}
    return {**kept, **backend.environment}


@contextmanager
def forwarded(
    backend: Backend, job_id: int, ports: Mapping[int, int], *, rank: int = 0
) -> Iterator[subprocess.Popen[str]]:
    """Connect ports of this machine's loopback address with ports of a job, during the block.

    Yields the process that does it. It runs until the block ends, the job does, or the right to it.

    Args:
        backend: where the job is.
        job_id: the job, which must run.
        ports: the job's port by this machine's.
        rank: which of the job's machines.

    Raises:
        ClientError: a port of this machine is in use, or the job is not reached.
    """
    for local, port in ports.items():
        _require_free(local, port)
    led = [f"{LOOPBACK}:{local}:localhost:{port}" for local, port in ports.items()]
    words = ["-F", "none", "-N", *(word for place in led for word in ("-L", place))]
    words += ["-o", "ExitOnForwardFailure=yes"]
    words += ["-o", "PermitLocalCommand=yes", "-o", f"LocalCommand=echo {READY}"]
    given = command(host(job_id, rank), *words, ports=list(ports.values()))
    process = subprocess.Popen(  # noqa: S603 - fixed words and numbers
        given, env=environment(backend), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            if process.stdout.readline().strip() != READY:
                raise lost(job_id)
            yield process
        finally:
            process.terminate()


def listens(local: int) -> bool:
    """Tell whether something in the job listens behind a port that is forwarded."""
    try:
        with socket.create_connection((LOOPBACK, local), LOOK_S) as asking:
            return asking.recv(1) != b""
    except TimeoutError:
        return True  # it waits for what is said
    except OSError:
        return False


def lost(job_id: int) -> ClientError:
    """Return the error of a connection that has ended, or did not begin."""
    return ClientError(
        f"there is no connection to job {job_id}",
        hint=f"the reason is above; `forge show {job_id}` says whether it still runs",
        code="shell_lost",
    )


def free_port() -> int:
    """Return a port of the loopback address that nothing uses now."""
    with socket.create_server((LOOPBACK, 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def _require_free(local: int, port: int) -> None:
    try:
        socket.create_server((LOOPBACK, local)).close()
    except OSError as error:
        # A process of `forge up` listens on this machine itself.
        own = f"if the job runs here as a process, {LOOPBACK}:{local} is the job; else "
        raise InvalidInput(
            f"port {local} of this machine cannot be used: {error.strerror}",
            hint=f"{own if local == port else ''}choose another for it, as in 9999:{port}",
        ) from error
