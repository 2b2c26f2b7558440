"""Give the disk space of a file's beginning back, while the file keeps its length."""

import ctypes
import os
from typing import BinaryIO

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
# Where there is none, as on macOS, nothing is given back.
_fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
if _fallocate is not None:
    _fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def punch(file: BinaryIO, length: int) -> None:
    """Free the first `length` bytes of a file open for writing; from then on they read as zeros.

    Raises:
        OSError: its file system cannot do this.
    """
    if _fallocate is None:
        return
    if _fallocate(file.fileno(), _PUNCH_HOLE | _KEEP_SIZE, 0, length):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
