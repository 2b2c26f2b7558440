"""Run commands inside a running job on this machine, found by its worker's labels."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from threading import Thread
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from forge_schema.shell import PIECE_BYTES, STDOUT
from forge_worker.runners.entry import Entry, find

from forge_client.errors import ClientError, as_client_error

if TYPE_CHECKING:
    from forge_worker.shells.ssh import Ssh

RunningHere: TypeAlias = Entry
NOT_FOUND, NOT_EXECUTABLE = 127, 126
# An interactive shell needs to know the terminal; jobs do not have one.
TERMINAL = ("TERM", "COLORTERM")


def here(worker: str, job_id: int, attempt: int) -> Entry | None:
    """Return an attempt that runs on this machine; None if it does not.

    Raises:
        ClientError: it runs here, but this user has no access to it.
    """
    with as_client_error():
        return find(
            {"forge.worker": worker, "forge.job": str(job_id), "forge.attempt": str(attempt)}
        )


def enter(job: Entry, command: Sequence[str]) -> NoReturn:
    """Replace this process by a command inside a job, keeping its terminal or pipes.

    Raises:
        ClientError: the command cannot be run.
    """
    tty = sys.stdin.isatty() and sys.stdout.isatty()
    known = {name: os.environ[name] for name in TERMINAL if tty and name in os.environ}
    program = job.program(command, known, tty=tty)
    if program.uid and os.geteuid() == 0:
        os.setgroups([])
        os.setgid(program.gid or 0)
        os.setuid(program.uid)
    if program.folder is not None:
        os.chdir(program.folder)
    become(program.command, program.env)


def serve(job: Entry, mark: str, ports: list[int], pin: Callable[[str], None]) -> None:
    """Serve SSH inside a job on this process's input and output, until either ends.

    `pin` is told the server's public key before its first byte.
    """
    # Only for this; its library takes a while to import.
    from forge_worker.shells.ssh import Ssh  # noqa: PLC0415

    ssh = Ssh(job, mark, ports)
    pin(ssh.host_key)
    Thread(target=_type, args=(ssh,), name="stdin", daemon=True).start()
    try:
        while data := os.read(ssh.outputs[STDOUT], PIECE_BYTES):
            while data:
                data = data[os.write(1, data) :]
    except BrokenPipeError:
        return
    finally:
        ssh.kill()
        ssh.close()


def _type(ssh: "Ssh") -> None:
    while data := os.read(0, PIECE_BYTES):
        ssh.type(data)
    ssh.type(b"")


def become(command: Sequence[str], env: dict[str, str]) -> NoReturn:
    """Replace this process by a command, which takes over its terminal, signals and exit code.

    Raises:
        ClientError: the command does not exist or cannot be run.
    """
    program = shutil.which(command[0], path=env.get("PATH", os.defpath))
    sys.stdout.flush()
    try:
        os.execvpe(program or command[0], list(command), env)  # noqa: S606 - no shell is the point
    except FileNotFoundError as error:
        raise _unrunnable(command[0], "not found", NOT_FOUND) from error
    except OSError as error:
        raise _unrunnable(command[0], str(error.strerror), NOT_EXECUTABLE) from error


def _unrunnable(name: str, why: str, code: int) -> ClientError:
    return ClientError(
        f"{name}: {why}", hint="check that it is installed there", code="not_run", exit_code=code
    )
