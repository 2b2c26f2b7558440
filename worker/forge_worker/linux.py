"""The worker needs Linux; here is where to run it instead, and what this process may use of it."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from math import inf
from pathlib import Path

# What the worker uses of Python and other systems lack.
UNIX = ("fcntl", "pwd", "resource", "termios")
PLACES = {
    "win32": "in WSL 2: `wsl --install`, and in its terminal the line of `forge worker add`",
    "darwin": "in a Linux virtual machine, as that of Docker Desktop's, Colima or Lima",
}

# The control groups of this process, and where all of them are.
OWN, ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def required() -> None:
    """Return on Linux; `SystemExit` if this is another system."""
    missing = [name for name in UNIX if find_spec(name) is None]
    if sys.platform == "linux" and not missing:
        _prepared()
        return
    lack = f" (its Python has no {', '.join(missing)})" if missing else ""
    sys.exit(
        f"forge-worker: a worker needs Linux, and this is {sys.platform}{lack}\n"
        f"  run it {PLACES.get(sys.platform, 'on a Linux machine')};"
        " the `forge` command itself works here"
    )


def _prepared() -> None:
    if not Path("/proc/self").exists():
        sys.exit("forge-worker: there is no /proc here\n  mount it: mount -t proc proc /proc")
    try:
        Path.home()
    except RuntimeError:
        sys.exit(
            f"forge-worker: user {os.getuid()} has no home\n"
            "  set HOME to a folder that this user can write to"
        )


def memory_limit(own: Path = OWN, root: Path = ROOT) -> float:
    """Return the bytes that this process and its children may have; infinite without a limit."""
    files = ("memory.max", "memory.limit_in_bytes")
    limits = (_numbers(group / name) for group in _groups("memory", own, root) for name in files)
    return min((float(numbers[0]) for numbers in limits if numbers), default=inf)


def cpu_limit(own: Path = OWN, root: Path = ROOT) -> float:
    """Return how many CPUs this process and its children may use at once."""
    # `forge up` asks before its workers say which system they need.
    least = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else inf
    for group in _groups("cpu", own, root):
        quota = _numbers(group / "cpu.max") or [
            *_numbers(group / "cpu.cfs_quota_us"),
            *_numbers(group / "cpu.cfs_period_us"),
        ]
        if len(quota) > 1 and quota[0] > 0:
            least = min(least, quota[0] / quota[1])
    return least


def _groups(kind: str, own: Path, root: Path) -> Iterator[Path]:
    """Yield this process's control group for a kind of limit, and those above it."""
    unified = (root / "cgroup.controllers").exists()
    mounted = root if unified else root / kind
    with suppress(OSError):
        for line in own.read_text(encoding="utf-8").splitlines():
            _, kinds, path = line.split(":", 2)
            if not kinds if unified else kind in kinds.split(","):
                # In a container, the name may be the host's, which does not exist inside.
                below = mounted / path.strip("/")
                group = below if below.is_dir() else mounted
                yield from (
                    each for each in (group, *group.parents) if root in (each, *each.parents)
                )


def _numbers(file: Path) -> list[int]:
    with suppress(OSError, ValueError):  # "max" is no limit
        return [int(word) for word in file.read_text(encoding="ascii").split()]
    return []
