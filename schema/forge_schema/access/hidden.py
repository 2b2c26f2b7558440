"""Hide a process that holds credentials from other processes of the same user."""

import ctypes
import sys

_PR_SET_DUMPABLE = 4


def hide() -> None:
    """Hide this process's memory, environment and open files in `/proc` from its own user.

    Linux only. Root can still read them, unless it lacks CAP_SYS_PTRACE, CAP_SYS_ADMIN
    and CAP_PERFMON.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
