"""The worker needs Linux: on another system it says where to run it instead."""

import sys
from importlib.util import find_spec

# What the worker uses of Python and other systems lack.
UNIX = ("fcntl", "pwd", "resource", "termios")
PLACES = {
    "win32": "in WSL 2: `wsl --install`, and in its terminal the line of `forge worker add`",
    "darwin": "in a Linux virtual machine, as that of Docker Desktop's, Colima or Lima",
}


def required() -> None:
    """Return on Linux; `SystemExit` if this is another system."""
    missing = [name for name in UNIX if find_spec(name) is None]
    if sys.platform == "linux" and not missing:
        return
    lack = f" (its Python has no {', '.join(missing)})" if missing else ""
    sys.exit(
        f"forge-worker: a worker needs Linux, and this is {sys.platform}{lack}\n"
        f"  run it {PLACES.get(sys.platform, 'on a Linux machine')};"
        " the `forge` command itself works here"
    )
