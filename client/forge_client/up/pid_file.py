"""A process in a file: its pid and its start time, since pids are reused."""

from pathlib import Path

import psutil

NAME = "pid"
START = 19  # of the words after the name in /proc/PID/stat


def write(path: Path, pid: int) -> None:
    """Record a child that has not been waited for yet."""
    path.write_text(f"{pid} {_started(pid)}\n", encoding="utf-8")


def read(path: Path) -> psutil.Process | None:
    """Return the recorded process; None if it has ended."""
    try:
        pid, started = map(int, path.read_text(encoding="utf-8").split())
        process = psutil.Process(pid)
        if _started(pid) == started and process.status() != psutil.STATUS_ZOMBIE:
            return process
    except (OSError, ValueError, psutil.Error):
        pass
    return None


def _started(pid: int) -> int:
    """Return a process's start time in ticks since boot, which clock changes do not affect."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(stat.rpartition(")")[2].split()[START])
