"""Fork and become the job's main process. Standard library only: the shim uses it."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
from typing import TYPE_CHECKING, NamedTuple

from forge_worker.runners.process.confinement import enter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from forge_worker.runners.process.confinement import Confinement

NOT_FOUND = 127
NOT_EXECUTABLE = 126
SHELL = "/bin/sh"
# So much of a file shows whether it is text.
PEEK = 256
# When memory runs out, the kernel should kill the job and not the agent.
OOM_SCORE = "500"

_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
# SYS_PTRACE, SYS_ADMIN and PERFMON: any of them lets root read the agent's memory.
_SEEING = (19, 21, 38)
_libc = ctypes.CDLL(None, use_errno=True)


class Order(NamedTuple):
    """The shim's order to run a job; `cpus` and `grace_s` as in a RunSpec.

    `title` is the end of the shim's command line: the job's name and its labels. `cpu_set` are the
    numbers of the CPUs to run on; empty if CPUs are limited otherwise. Without an agent, the job
    runs for `alone_s` seconds. `user` has the numbers of the job's user, of its group, and of
    its other groups; without them, the job has the shim's.
    """

    command: list[str]
    env: dict[str, str]
    cwd: str
    log: str
    memory_bytes: int
    grace_s: float
    title: list[str]
    cpus: float
    cpu_set: list[int]
    alone_s: float = 0.0
    user: Sequence[int] = ()


def become_subreaper() -> None:
    """Make orphans below this process its children instead of init's."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def spawn(output: int) -> tuple[int, int]:
    """Start a process that waits to become the job, in a session of its own, writing to `output`.

    Returns:
        Its process id, and the descriptor at which it waits for `begin`.
    """
    parent = os.getpid()
    waits, begins = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(begins)
        _wait(waits, output, parent)
    os.close(waits)
    return pid, begins


def begin(begins: int, order: Order, confinement: Confinement) -> None:
    """Have a process that waits become the job."""
    with open(begins, "wb") as waiting:
        waiting.write(json.dumps([order, confinement.entrances]).encode())


def _wait(waits: int, output: int, parent: int) -> NoReturn:
    try:
        _prepare(output, parent)
        order, entrances = _received(waits)
        os.chdir(order.cwd)
        if order.cpu_set:
            os.sched_setaffinity(0, order.cpu_set)
        enter(entrances)
        if order.user:
            _become(order.user, parent)
    except BaseException as error:  # noqa: BLE001  a forked child must end here, whatever it is
        _end(f"cannot prepare the job: {error}", NOT_EXECUTABLE)
    _execute(order)


def _received(waits: int) -> tuple[Order, list[str]]:
    with open(waits, "rb") as shim:
        message = shim.read()
    if not message:  # the shim has got no order
        os._exit(0)
    order, entrances = json.loads(message)
    return Order(*order), entrances


def _prepare(output: int, parent: int) -> None:
    os.setsid()
    _die_with(parent)
    with open("/dev/null", "rb") as nothing:  # noqa: PTH123  pathlib would be one more import
        os.dup2(nothing.fileno(), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    _default_signals()
    for capability in _SEEING:
        # Only root has capabilities to drop, and older kernels do not know all of them.
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123  as above
        score.write(OOM_SCORE)


def _become(user: Sequence[int], parent: int) -> None:
    """Become the job's user, for good: it gains nothing by programs such as sudo either."""
    uid, gid, *groups = user
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # The kernel forgets it when the user changes.
    _die_with(parent)


def _die_with(parent: int) -> None:
    """Have the kernel kill this process if the shim dies. Safe: the shim has one thread."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(NOT_EXECUTABLE)


def _default_signals() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is not signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _execute(order: Order) -> NoReturn:
    name = order.command[0]
    try:
        os.execvpe(name, order.command, order.env)  # noqa: S606  no shell is the point
    except FileNotFoundError:
        _end(f"{name}: not found", NOT_FOUND)
    except BaseException as error:  # noqa: BLE001  as above
        if isinstance(error, OSError) and error.errno == errno.ENOEXEC:
            _by_shell(error.filename, order)
        _end(f"{name}: {error}", NOT_EXECUTABLE)


def _by_shell(script: str, order: Order) -> None:
    """Run a script whose first line names no program by a shell, as shells and execvp do."""
    try:
        with open(script, "rb") as file:  # noqa: PTH123  as above
            if b"\0" not in file.read(PEEK):
                os.execve(SHELL, [SHELL, script, *order.command[1:]], order.env)  # noqa: S606  as above
    except OSError:
        return


def _end(message: str, code: int) -> NoReturn:
    os.write(2, f"forge: {message}\n".encode(errors="surrogateescape"))
    os._exit(code)
