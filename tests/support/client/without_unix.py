"""Run one of our programs as a Python without Unix's modules and calls would: `NAME [WORDS…]`.

It stands for Windows as far as names go: what a program imports or calls and is not there. Paths,
files and processes are still those of this machine.
"""

from __future__ import annotations

import asyncio  # noqa: F401  it and the others below choose by system as they are imported
import multiprocessing  # noqa: F401
import os
import signal
import socket
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
from importlib.metadata import entry_points

import platformdirs  # noqa: F401

MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
CALLS = {
    os: (
        *("chown", "copy_file_range", "fchmod", "fchown", "fork", "forkpty", "getegid", "geteuid"),
        *("getgid", "getgroups", "getloadavg", "getpgid", "getuid", "killpg", "lchown", "mkfifo"),
        *("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "pidfd_open", "posix_fallocate"),
        *("pread", "preadv", "pwrite", "pwritev", "register_at_fork", "sched_getaffinity"),
        *("sendfile", "setsid", "statvfs", "sysconf", "uname"),
    ),
    # Of the kill signal subprocess has its own use here.
    signal: ("SIGALRM", "SIGCHLD", "SIGHUP", "SIGPIPE", "SIGUSR1", "SIGUSR2", "SIGWINCH"),
    socket: ("AF_UNIX",),
}


def main() -> None:
    """Run it in this process."""
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # importing it fails
    for module, names in CALLS.items():
        for name in names:
            delattr(module, name)
    sys.argv = sys.argv[1:]
    (program,) = entry_points(group="console_scripts", name=sys.argv[0])
    program.load()()


if __name__ == "__main__":
    main()
