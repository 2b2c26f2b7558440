"""A stop on its way through a job, from its main process to the rest. Standard library only.

The main process is signalled first: it may pass the signal on and wait, as torchrun and mpirun do.
A shell or a launcher dies of it instead, and leaves the program that has something to save. So
whatever is left without a parent is signalled next, and so on down. A process that would only die
of the signal and has started nothing comes last: `tee` still has to write what the others say.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from forge_worker.runners.process.descendants import descendants

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

# How often the processes are looked at.
TURN_S = 0.2
# What only dies of the signal gets it this long after the last that does more with it has ended.
SETTLE_S = 2.0
# A parent that handled the signal may have passed it on: a second one soon after the first could
# interrupt what that one began.
PASSED_ON_S = 5.0
# After a command that ended by itself, the rest may end for so long, and then has so long to leave.
LEFT_SETTLE_S, LEFT_NOTICE_S = 1.0, 2.0
SHELLS = frozenset({"sh", "ash", "bash", "busybox", "dash", "ksh", "mksh", "rbash", "zsh"})
DEAD = (b"Z", b"X")
NAMES = 5


class Process(NamedTuple):
    """A process as the kernel shows it; `deals` is whether it does more with a signal than die."""

    pid: int
    parent: int
    name: str
    deals: bool


class SignalNotice:
    """A signal that a job was sent, from its main process to all others. Times are by one clock.

    Args:
        number: the signal.
        now: when the main process was sent it.
        until_s: when what still runs is killed.
    """

    def __init__(self, number: int, now: float, until_s: float) -> None:
        self.number = number
        self._until_s = until_s
        # A shell may wait for its command whatever it is sent.
        self._late_s = (now + until_s) / 2
        self._last_s = now + SETTLE_S
        self._signalled: set[int] = set()
        # When a process whose parent is gone is due.
        self._due_s: dict[int, float] = {}
        self._main_dealt = False
        self._below_dealing: set[int] = set()

    def ended(self, now: float, *, dealt: bool) -> None:
        """Note that the main process has ended; `dealt` is whether it did more than die."""
        self._main_dealt = dealt
        self._last_s = now + SETTLE_S

    def turn(self, now: float, processes: Sequence[Process], main: int | None) -> None:
        """Signal those that are due; `main` is the main process while it runs."""
        rest = {process.pid: process for process in processes if process.pid != main}
        if any(each.deals for each in rest.values()):
            self._last_s = now + SETTLE_S
        parents = {each.parent for each in rest.values()}
        for each in rest.values():
            useful = each.deals or each.pid in parents or now >= self._last_s
            if useful and each.pid not in self._signalled and self._due(each, rest, main, now):
                self._signalled.add(each.pid)
                send(each.pid, self.number)
        # Parents come before their children.
        for each in rest.values():
            dealing = (
                each.parent in self._signalled and each.parent in rest and rest[each.parent].deals
            )
            if dealing or each.parent in self._below_dealing:
                self._below_dealing.add(each.pid)

    def _due(
        self, process: Process, rest: Mapping[int, Process], main: int | None, now: float
    ) -> bool:
        """Return whether nothing above a process will tell it to stop."""
        if process.parent == main or process.parent in rest:
            asked = process.parent == main or process.parent in self._signalled
            return asked and now >= self._late_s and is_shell(process.parent)
        if main is not None:
            return False
        told_before = self._main_dealt or process.pid in self._below_dealing
        pause_s = min(PASSED_ON_S, max(0.0, self._until_s - now) / 2) if told_before else 0.0
        return now >= self._due_s.setdefault(process.pid, now + pause_s)


def send(pid: int, number: int) -> None:
    """Send a signal, unless the process is gone or another user's."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def living(root: int, number: int = signal.SIGTERM) -> list[Process]:
    """Return the processes below `root` that have not ended, parents before their children."""
    processes = (_process(pid, number) for pid in descendants(root))
    return [process for process in processes if process is not None]


def deals(pid: int, number: int) -> bool:
    """Return whether a process does more with a signal than die."""
    process = _process(pid, number)
    return process is not None and process.deals


def catches(pids: Collection[int], number: int) -> bool | None:
    """Return whether one of these processes handles a signal, or waits for it; None without any."""
    masks = (b"SigCgt", b"SigBlk")
    return any(_has(status, number, *masks) for status in map(_status, pids)) if pids else None


def is_shell(pid: int) -> bool:
    """Return whether a process is a shell: it may wait for its command whatever it is sent."""
    try:
        program = os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115  pathlib would be one more import
    except OSError:
        return False
    return os.path.basename(program) in SHELLS  # noqa: PTH119  as above


def is_untrapped(pid: int, number: int) -> bool:
    """Return whether a process is a shell without a trap for a signal."""
    return is_shell(pid) and not _has(_status(pid), number, b"SigCgt")


def said_of(processes: list[Process], when: str) -> bytes:
    """Return the line of the job's log about processes that were killed."""
    counted = Counter(process.name for process in processes)
    names = [f"{name} ({n})" if n > 1 else name for name, n in counted.most_common(NAMES)]
    more = ["…"] if len(counted) > NAMES else []
    subject, were = (
        ("1 process", "was") if len(processes) == 1 else (f"{len(processes)} processes", "were")
    )
    text = f"forge: {subject} still ran {when} and {were} killed: {', '.join([*names, *more])}\n"
    return text.encode(errors="replace")


def _status(pid: int) -> dict[bytes, bytes]:
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:  # noqa: PTH123  as above
            lines = file.read().split(b"\n")
    except OSError:  # it ended meanwhile
        return {}
    return {name: value.strip() for name, _, value in (line.partition(b":") for line in lines)}


def _has(status: dict[bytes, bytes], number: int, *masks: bytes) -> bool:
    """Return whether a signal is in one of a process's masks."""
    return any(int(status.get(mask, b"0"), 16) >> (number - 1) & 1 for mask in masks)


def _process(pid: int, number: int) -> Process | None:
    status = _status(pid)
    if status.get(b"State", b"Z").startswith(DEAD):
        return None
    deals = _has(status, number, b"SigCgt", b"SigIgn", b"SigBlk")
    name = status.get(b"Name", b"?").decode(errors="replace")
    shown = "".join(char if char.isprintable() else "?" for char in name)
    return Process(pid, int(status.get(b"PPid", b"0")), shown, deals)
