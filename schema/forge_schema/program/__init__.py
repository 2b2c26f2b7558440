"""What programs set up as they start: their settings, their log, and imports that they need."""

import os
import sys


def standard_streams() -> None:
    """Open those of stdin, stdout and stderr that are closed, so that no connection becomes one."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004  stderr's number
        os.set_inheritable(number, True)  # noqa: FBT003  its name says what it sets
    os.close(number)
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115  of the whole program
