"""A process in a file: its id, and when it started, since the id may be another's some day."""

from pathlib import Path

import psutil

NAME = "pid"
START = 19  # of the words after the name in /proc/PID/stat


def write(path: Path, pid: int) -> None:
    """Note a child that is not waited for yet."""
    path.write_text(f"{pid} {_started(pid)}\n", encoding="utf-8")


def read(path: Path) -> psutil.Process | None:
    """Return the process that was noted, None if it has ended."""
    try:
        pid, started = map(int, path.read_text(encoding="utf-8").split())
        process = psutil.Process(pid)
        if _started(pid) == started and process.status() != psutil.STATUS_ZOMBIE:
            return process
    except (OSError, ValueError, psutil.Error):
        pass
    return None


def _started(pid: int) -> int:
    """Return when a process started, in ticks since boot, which no change of the clock moves."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(stat.rpartition(")")[2].split()[START])
