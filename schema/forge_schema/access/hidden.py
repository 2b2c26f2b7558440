"""A process that holds credentials, closed to other processes of its own user."""

import ctypes
import sys

_PR_SET_DUMPABLE = 4


def hide() -> None:
    """Close this process' memory, environment and open files in `/proc` to others of its user.

    Linux only. Root reads them still, unless it lacks CAP_SYS_PTRACE, CAP_SYS_ADMIN
    and CAP_PERFMON.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
