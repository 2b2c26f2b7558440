"""The small program between the agent and a job that runs as a process.

It starts the job, copies its output to the log, watches its memory, and, as a subreaper, inherits
every process that the job leaves behind. When the main process has ended, the rest of the job has
what is left of its time to stop (see `notice`), or a moment if nobody had asked it to. Orders and
the exit travel over one socket; when it closes, the other side has died. The job then runs on for
as long as its lease may last. The next agent comes in by the door (see `door`), or reads there how
the job ended; if none comes, the job is stopped. The shim is a copy of the `fork_server`, which
imports only a little of the standard library. Its stderr is the job's log.

Memory is polled (see `descendants.memory_bytes`) in addition to the control group's limit, if there
is one (see `confinement`). Polling needs no privileges, works everywhere, and ends the whole job
instead of one process picked by the kernel. Without a group, a job can exceed its limit for a
moment. With one, the kernel says when it kills, and memory that stays the same is polled seldom.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import selectors
import signal
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from forge_worker.runners.process.child import Order, become_subreaper, begin, spawn
from forge_worker.runners.process.confinement import confine, parents
from forge_worker.runners.process.descendants import descendants, kill_children, memory_bytes
from forge_worker.runners.process.door import ALONE_S, EXIT, opened
from forge_worker.runners.process.notice import (
    LEFT_NOTICE_S,
    LEFT_SETTLE_S,
    TURN_S,
    Process,
    SignalNotice,
    deals,
    is_untrapped,
    living,
    said_of,
    send,
)
from forge_worker.runners.process.output import Output

if TYPE_CHECKING:
    import socket

# Usually, and above half of the limit or when something has happened.
CALM_S, ALERT_S = 0.5, 0.1
# If the kernel holds the job to its limit, pauses double up to this while the memory stays the
# same: while it changes by less than this share of the limit.
QUIET_S, SHARE = 5.0, 1 / 64

LENGTH = struct.Struct("!Q")
# The end of the command line of the fork server, which the job's takes the place of in its shim.
BLANK = "-" * 4096
# As in the agent's record: JSON escapes a character with up to six bytes.
DETAIL_LENGTH = 300
NEVER = float("inf")
# A job that ends so soon after a signal to all may have got it, even if it has no grace.
SWEPT_S = 5.0
# The field `arg_start` of /proc/self/stat, after the program's name: the address of the arguments.
ARG_START = 45
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


class Pace:
    """The pauses between two looks; `held` says that the kernel holds the job to its limit."""

    def __init__(self, limit: int, *, held: bool) -> None:
        self._limit = limit
        self._held = held
        self._used = 0
        self._pause_s = ALERT_S

    def hasten(self) -> float:
        """Return the seconds until the next look when something has happened."""
        self._pause_s = ALERT_S
        return ALERT_S

    def next(self, used: int) -> float:
        """Return the seconds until the next look after one that found this many bytes in use."""
        before, self._used = self._used, used
        if not self._held:
            return ALERT_S if used > self._limit / 2 else CALM_S
        same = abs(used - before) < SHARE * self._limit
        self._pause_s = min(QUIET_S, 2 * self._pause_s) if same else CALM_S
        return self._pause_s


class Shim:
    """One job from its start to its last process."""

    def __init__(self, agent: socket.socket) -> None:
        self._agent = agent
        self._orders = b""
        self._kill_at = NEVER
        self._killed = False
        self._notice: SignalNotice | None = None
        self._main_deals = False
        # When what runs on after a command that ended by itself is told to end.
        self._leave_at = NEVER
        # What that was, and what was killed when the time to stop was up.
        self._left: list[Process] = []
        self._cut_off: list[Process] = []
        self._ended_at = 0.0
        self._gone_at = self._alone_until = NEVER
        self._abandoned = False
        self._door: socket.socket | None = None
        self._measure_at = NEVER
        self._status: int | None = None
        self._oom = False
        self._reaped = False
        # Signals that others than the agent sent, with when they came and whether the main process
        # may have handled them; and the one that may have ended the job.
        self._overheard: dict[int, tuple[float, bool]] = {}
        self._swept = self._pid = 0
        self._peak = 0
        # A job waits for what comes after its order, but not for this.
        become_subreaper()
        self._source, self._sink = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._watch()
        # It makes the first use of each page of memory slow again, so the rest comes after it.
        self._pid, self._begins = spawn(self._sink)
        self._parents = parents()

    def run(self, order: Order) -> None:
        """Run the job and report how it ended."""
        self._order = order
        self._agent.setblocking(False)  # noqa: FBT003  its name says what it sets
        self._output = Output(self._source, Path(order.log))
        self._confinement = confine(
            order.title[0],
            self._parents,
            cpus=order.cpus,
            memory_bytes=order.memory_bytes,
        )
        if os.waitpid(self._pid, os.WNOHANG)[0]:  # it was killed while it waited
            self._pid, self._begins = spawn(self._sink)
        self._overheard.clear()
        begin(self._begins, order, self._confinement)
        self._tell(pid=self._pid)
        os.close(self._sink)
        self._pace = Pace(order.memory_bytes, held=self._confinement.holds_memory)
        self._measure_at = time.monotonic() + self._pace.hasten()
        self._open_door()
        self._watch_memory()
        while self._runs():
            self._turn()
        stubborn = kill_children()
        self._look_for_oom()
        self._output.drain()
        self._say_what_was_killed()
        self._see_what_ended_it()
        code, detail = self._code(), self._detail(stubborn)
        self._note_exit(code, detail)
        ending = {"code": code, "oom": self._oom, "detail": detail, "at_ns": self._at_ns()}
        void = {"void": self._own_code()} if self._swept else {}
        self._tell(**ending, **void, **self._used())
        self._confinement.end()

    def kill(self) -> None:
        """End the job without grace."""
        self._killed = True
        if self._status is None:
            send(self._pid, signal.SIGKILL)

    def reap(self) -> None:
        """End the job without grace for a later agent; its exit code is then meaningless."""
        self._reaped = True
        self.kill()

    def _watch(self) -> None:
        woken, wake = os.pipe()
        for end in (woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGQUIT, lambda *_: self.reap())
        # A service manager signals every process of its unit, and a session or a machine that ends
        # all of its own, but only the agent decides what to do.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._overhear)
        self._selector.register(self._source, selectors.EVENT_READ, self._copy)
        self._selector.register(self._agent, selectors.EVENT_READ, self._obey)
        self._selector.register(woken, selectors.EVENT_READ, lambda: os.read(woken, 512))

    def _overhear(self, number: int, _: object) -> None:
        now, ended = time.monotonic(), self._status is not None
        # It may reach the main process first.
        if not ended or now - self._ended_at < TURN_S:
            self._overheard[number] = now, ended or not is_untrapped(self._pid, number)

    def _watch_memory(self) -> None:
        with contextlib.suppress(OSError):  # without it, a kill is seen at the next look
            if (event := self._confinement.oom_event()) is not None:
                self._selector.register(event, selectors.EVENT_READ, lambda: self._alert(event))

    def _alert(self, event: int) -> None:
        """Look soon, and again: the kernel kills only after it has said so."""
        os.eventfd_read(event)
        self._measure_at = time.monotonic() + self._pace.hasten()

    def _open_door(self) -> None:
        if self._order.alone_s > 0:
            with contextlib.suppress(OSError):  # without a door, the job ends with its agent
                self._door = opened(Path(self._order.log).parent)
                self._selector.register(self._door, selectors.EVENT_READ, self._let_in)

    def _let_in(self) -> None:
        """Serve the agent that came last: only one holds the lock of the worker's folder."""
        assert self._door is not None  # noqa: S101 - it has just become readable
        agent, _ = self._door.accept()
        if self._alone_until == NEVER:
            self._selector.unregister(self._agent)
        self._agent.close()
        self._agent, self._orders = agent, b""
        self._gone_at = self._alone_until = NEVER
        agent.setblocking(False)  # noqa: FBT003  its name says what it sets
        self._selector.register(agent, selectors.EVENT_READ, self._obey)
        self._tell(shim=os.getpid(), pid=self._pid, cpu_set=self._order.cpu_set)

    def _give_up(self) -> None:
        """Stop the job for want of an agent: its exit code is then not its own."""
        self._alone_until, self._abandoned = NEVER, True
        if self._door is not None:
            self._selector.unregister(self._door)
            self._door.close()
        self._stop()

    def _at_ns(self) -> int:
        """Return when the main process ended, since the epoch; 0 if that was not seen."""
        if not self._ended_at:
            return 0
        return time.time_ns() - int((time.monotonic() - self._ended_at) * 1e9)

    def _note_exit(self, code: int | None, detail: str) -> None:
        """Save how the job ended: the agent may be gone before it hears it."""
        if self._door is None or self._abandoned or code is None:
            return
        kept: dict[str, object] = {
            "code": code,
            "oom_killed": self._oom,
            "detail": detail[:DETAIL_LENGTH],
            "at_ns": self._at_ns(),
        }
        if not self._killed and not self._oom:
            kept[ALONE_S] = max(0.0, self._ended_at - self._gone_at)
        # In place, in space that the agent allocated: the disk may be full.
        with contextlib.suppress(OSError):
            file = os.open(Path(self._order.log).with_name(EXIT), os.O_WRONLY | os.O_CREAT, 0o600)
            os.pwrite(file, json.dumps(kept).encode(), 0)
            os.close(file)

    def _runs(self) -> bool:
        """Return whether the main process runs, or something below it still has time to end."""
        if self._status is None:
            return True
        return not (self._killed or self._oom) and bool(living(os.getpid()))

    def _turn(self) -> None:
        now = time.monotonic()
        look_at = NEVER if self._notice is None else now + TURN_S
        next_at = min(self._kill_at, self._measure_at, self._alone_until, self._leave_at, look_at)
        for key, _ in self._selector.select(max(0.0, next_at - now)):
            key.data()
        self._collect()
        now = time.monotonic()
        if now >= self._measure_at:
            self._measure()
        if now >= self._alone_until:
            self._give_up()
        if now >= self._leave_at:
            self._end_the_left()
        if self._notice is not None:
            main = self._pid if self._status is None else None
            self._notice.turn(now, living(os.getpid(), self._notice.number), main)
        if now >= self._kill_at:
            self._kill_at = NEVER
            self._end_notice()

    def _end_the_left(self) -> None:
        """Tell what runs on after a command that ended by itself to end."""
        self._leave_at = NEVER
        self._left = living(os.getpid())
        for process in self._left:
            send(process.pid, signal.SIGTERM)

    def _end_notice(self) -> None:
        """Kill what still runs."""
        self._cut_off = [] if self._left else living(os.getpid())
        self.kill()

    def _see_what_ended_it(self) -> None:
        """Note whether others told the job to stop: it may have saved its state, and exited with 0.

        A shell that would only die of the signal, and has not, got none: its script may have sent
        it itself, as `pkill python` does. Python undoes its handlers before it ends.
        """
        if self._notice is not None or self._killed or self._oom:
            return
        since = self._ended_at - max(self._order.grace_s, SWEPT_S)
        died_of = -os.waitstatus_to_exitcode(self._status or 0)
        for number, (at, handled) in self._overheard.items():
            if at > since and (handled or number == died_of):
                self._swept = number

    def _say_what_was_killed(self) -> None:
        if self._oom or self._reaped:
            return
        if self._left:
            self._output.append(said_of(self._left, "when the command ended"))
        if self._cut_off:
            self._output.append(said_of(self._cut_off, "when the time to stop was up"))

    def _copy(self) -> None:
        self._output.turn()
        if self._output.ended:
            self._selector.unregister(self._output.source)

    def _obey(self) -> None:
        try:
            received = self._agent.recv(4096)
        except BlockingIOError:  # it was the agent before this one that closed its end
            return
        except OSError:
            received = b""
        if not received:  # the agent is gone
            self._selector.unregister(self._agent)
            alone_s = self._order.alone_s if self._door else 0.0
            self._gone_at = time.monotonic()
            self._alone_until = self._gone_at + alone_s
        *orders, self._orders = (self._orders + received).split(b"\n")
        for order in orders:
            self._follow(*order.decode().split())

    def _follow(self, verb: str, *arguments: str) -> None:
        match verb:
            case "signal":
                self._signal(int(arguments[0]), float(arguments[1]))
            case "stop":
                self._stop()
            case "kill":
                self.kill()

    def _stop(self) -> None:
        if self._kill_at == NEVER:
            self._kill_at = time.monotonic() + self._order.grace_s
            self._signal(signal.SIGTERM, self._order.grace_s)

    def _signal(self, number: int, notice_s: float) -> None:
        """Have the job stop: the main process first, and the rest once that has ended."""
        if number == signal.SIGKILL:
            self._end_notice()
            return
        if self._notice is not None and number == self._notice.number:
            return  # a later agent repeats what the one before it began
        now = time.monotonic()
        self._notice = SignalNotice(number, now, now + notice_s)
        # Until its status is collected, the process id cannot be reused.
        if self._status is None:
            self._main_deals = deals(self._pid, number)
            send(self._pid, number)

    def _collect(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._pid:
                    self._status, self._ended_at = ended[1], time.monotonic()
                    self._turn_to_the_rest()

    def _turn_to_the_rest(self) -> None:
        """Give what is below the main process, which has ended, its time."""
        if self._notice is not None:
            self._notice.ended(self._ended_at, dealt=self._main_deals)
        elif self._kill_at == NEVER:
            self._leave_at = self._ended_at + LEFT_SETTLE_S
            self._kill_at = self._leave_at + LEFT_NOTICE_S

    def _measure(self) -> None:
        limit = self._order.memory_bytes
        used = memory_bytes(descendants(os.getpid()), limit)
        self._peak = max(self._peak, used)
        self._measure_at = time.monotonic() + self._pace.next(used)
        self._look_for_oom()
        self._oom = self._oom or used > limit
        if self._oom:
            self.kill()

    def _look_for_oom(self) -> None:
        self._oom = self._oom or self._confinement.oom_kills() > 0

    def _used(self) -> dict[str, float]:
        # A process may have held more between two looks; the kernel records each one's peak.
        all_ = resource.getrusage(resource.RUSAGE_CHILDREN)
        peak = max(self._peak, all_.ru_maxrss * MAXRSS_UNIT)
        return {"cpu_seconds": all_.ru_utime + all_.ru_stime, "peak_bytes": peak}

    def _code(self) -> int | None:
        return None if self._reaped or self._swept else self._own_code()

    def _own_code(self) -> int:
        code = os.waitstatus_to_exitcode(self._status or 0)
        return code if code >= 0 else 128 - code

    def _detail(self, stubborn: int) -> str:
        limit = self._order.memory_bytes >> 20
        sentences = [
            "it was left behind by an earlier agent and killed" if self._reaped else "",
            f"all of the worker's processes got {signal.Signals(self._swept).name}"
            if self._swept
            else "",
            f"the job used more than its {limit} MiB of memory" if self._oom else "",
            f"{stubborn} of its processes could not be ended" if stubborn else "",
            self._output.error,
        ]
        return "; ".join(filter(None, sentences))

    def _tell(self, **message: object) -> None:
        with contextlib.suppress(OSError):  # the agent may be gone
            self._agent.sendall(json.dumps(message).encode() + b"\n")


def receive_order(agent: socket.socket) -> Order | None:
    """Read the order, which is all that the agent sends until the job has started.

    Returns:
        None if the agent is gone without one.
    """
    with agent.makefile("rb") as stream:
        if not (size := stream.read(LENGTH.size)):
            return None
        return Order(**json.loads(stream.read(LENGTH.unpack(size)[0])))


def title_place() -> int | None:
    """Return the address of the fork server's blank title, which is that of its copies' too.

    A process can change its command line only where the kernel shows its memory's layout, which
    macOS does not; there, a later agent does not find what an earlier one left.
    """
    try:
        place = Path("/proc/self/cmdline").read_bytes().index(BLANK.encode())
    except FileNotFoundError:
        return None
    start = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[ARG_START]
    return int(start) + place


def belong_to(order: Order, place: int | None) -> None:
    """Have a copy of the fork server write to its job's log, and carry its job's name."""
    log = os.open(order.log, os.O_WRONLY | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    if place is not None:
        title = "\0".join(order.title).encode().ljust(len(BLANK), b"\0")
        ctypes.memmove(place, title, len(title))


def run(agent: socket.socket, place: int | None) -> None:
    """Run the job whose order comes over a socket, in a copy of the fork server.

    `place` is the address of its title.
    """
    shim = Shim(agent)
    agent.sendall(json.dumps({"shim": os.getpid()}).encode() + b"\n")
    if (order := receive_order(agent)) is not None:
        belong_to(order, place)
        shim.run(order)
