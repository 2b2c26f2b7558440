"""How a job in a container is told to stop, and the shell there that waits for it.

The shell starts the job's main process. A container ends with its first process, the engine's init,
and that with its child, this shell. So when the main process has ended, the rest of the job lives
for as long as the shell waits: while the job is being stopped, or for a moment. Any shell will do.
It finds no other program but `sleep`, and does not wait without that one.

The main process runs in the foreground, because a shell has its other commands ignore SIGINT.
Signals to the shell wait until that ends. SIGURG, which nobody else sends, tells it of a stop; the
agent then signals the rest. An agent that does not see the processes has the init signal the whole
group of the shell (`GROUP`) instead, and the shell signals the rest.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forge_worker.runners.process.descendants import children
from forge_worker.runners.process.notice import (
    LEFT_NOTICE_S,
    LEFT_SETTLE_S,
    NAMES,
    TURN_S,
    Process,
    SignalNotice,
    deals,
    living,
    send,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PIPE = "/forge/out"
STOP = signal.SIGURG
# For docker-init, which is tini.
GROUP = {"TINI_KILL_PROCESS_GROUP": "1"}
# For an init that knows no such variable: a command in the container that does the same.
TO_GROUP = """
for one in /proc/[0-9]*/stat; do
    read -r line <$one || continue
    number=$1; id=${one#/proc/} id=${id%/stat}
    set -- ${line##*) }
    if [ $2 = 1 ] && [ $3 = $id ] && [ $4 = 1 ]; then kill -s $number -- -$id; exit; fi
    set -- $number
done
"""
# How many different names it counts.
KINDS = 20
# The longest that the shell waits for an agent to end the job.
LONGEST_S = 1800.0

# The job opens the pipe for reading too, so that without an agent it blocks instead of dying of
# SIGPIPE. What a shell says of a killed command is not the job's output.
SCRIPT = f"""
exec 3>&2 2>/dev/null
asked= got=
unset {" ".join(GROUP)}
trap 'asked=y' {int(STOP)}
for one in HUP INT QUIT USR1 USR2 TERM; do trap "got=$one" $one; done
(exec 2>&3 3>&-; exec "$@" 1<>{PIPE} 2>&1)
code=$?

# Sets how many others run, their ids, and the ids of those in other groups.
look() {{
    n=0 ids= apart=
    for folder in /proc/[0-9]*; do
        id=${{folder#/proc/}}
        read -r line <$folder/stat || continue
        set -- ${{line##*) }}
        # Ends of others, the init, what this shell starts, and what came from outside.
        case $1 in Z|X) continue;; esac
        case $id in 1|$$) continue;; esac
        case $2 in 0|$$) continue;; esac
        group=$3
        if [ $4 != 1 ] && read -r leader </proc/$4/stat; then
            set -- ${{leader##*) }}
            [ $2 = 0 ] && continue
        fi
        n=$((n + 1)) ids="$ids $id"
        [ $group = $$ ] || apart="$apart $id"
    done
    [ $n -gt 0 ]
}}
# Sets their names, each with how often it comes, the most common first. Of many, not all count.
name() {{
    names= kinds=0
    for id in $ids; do
        read -r line </proc/$id/stat || continue
        line=${{line#*\\(}} line=${{line%)*}} one=1
        while [ $one -le $kinds ]; do
            eval "[ \\"\\$line\\" = \\"\\$kind$one\\" ]" && break
            one=$((one + 1))
        done
        [ $one -le {KINDS} ] || continue
        [ $one -le $kinds ] || {{ kinds=$one; eval "kind$one=\\$line count$one=0"; }}
        eval "count$one=\\$((count$one + 1))"
    done
    shown=0
    while [ $shown -lt $kinds ]; do
        [ $shown -lt {NAMES} ] || {{ names="$names, …"; return; }}
        one=1 most=0
        while [ $one -le $kinds ]; do
            eval "often=\\$count$one"
            [ $often -le $most ] || most=$often which=$one
            one=$((one + 1))
        done
        eval "line=\\$kind$which count$which=0"
        [ $most = 1 ] || line="$line ($most)"
        names="$names${{names:+, }}$line" shown=$((shown + 1))
    done
}}
# Waits for them, so many turns at most.
await() {{
    turns=$1
    while look && [ $turns -gt 0 ]; do
        sleep {TURN_S} || sleep 1 || return
        turns=$((turns - 1))
    done
}}

look || exit $code
if [ "$asked" ]; then
    [ -z "$got" ] || kill -s $got $apart
    await {int(LONGEST_S / TURN_S)}
    exit $code
fi
await {int(LEFT_SETTLE_S / TURN_S)}
[ $n -gt 0 ] || exit $code
name
left="$n processes still ran when the command ended and were killed: $names"
[ $n -gt 1 ] || left="1 process still ran when the command ended and was killed: $names"
kill -s TERM $ids
await {int(LEFT_NOTICE_S / TURN_S)}
printf 'forge: %s\\n' "$left" 1<>{PIPE}
exit $code
"""


@dataclass(frozen=True, slots=True)
class Inside:
    """The processes of a container: its init, the first shell, and the job's main process.

    The last is 0 if the shell runs nothing.
    """

    init: int
    shell: int
    main: int

    @classmethod
    def of(cls, init: int) -> Inside | None:
        """Return those below an init; None if they have ended, or are another user's."""
        for shell in children(init)[:1]:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(shell, 0)
                return cls(init, shell, next(iter(children(shell)), 0))
        return None

    def job(self, number: int) -> list[Process]:
        """Return what lives of the job; `number` as of `living`."""
        return [
            process
            for process in living(self.init, number)
            if process.pid != self.shell
            and (process.parent != self.shell or process.pid == self.main)
        ]

    def kill(self) -> None:
        """Kill all of the job; the shell then ends with the main process's own code."""
        for process in self.job(signal.SIGKILL):
            send(process.pid, signal.SIGKILL)


class Telling:
    """Tells a job in a container to stop within `notice_s`, until `ended` says that it has."""

    def __init__(
        self, inside: Inside, number: int, notice_s: float, ended: Callable[[], bool]
    ) -> None:
        self._inside = inside
        self._ended = ended
        now = time.monotonic()
        self._notice = SignalNotice(number, now, now + notice_s)
        self._main_runs = True
        # If it does not, it dies of the signal.
        self._main_deals = False

    def start(self) -> None:
        """Signal the main process now, and the rest in a thread."""
        send(self._inside.shell, STOP)
        self._tell_main()
        threading.Thread(target=self._run, name="telling", daemon=True).start()

    def _tell_main(self) -> None:
        if main := self._inside.main:
            self._main_deals = deals(main, self._notice.number)
            send(main, self._notice.number)

    def _run(self) -> None:
        pause = threading.Event()
        while not self._ended():
            if self._inside.main:
                self._turn()
            elif inside := Inside.of(self._inside.init):
                # The shell had not started it yet.
                self._inside = inside
                self._tell_main()
            pause.wait(TURN_S)

    def _turn(self) -> None:
        job, now, main = self._inside.job(self._notice.number), time.monotonic(), self._inside.main
        if self._main_runs and main not in {process.pid for process in job}:
            self._main_runs = False
            self._notice.ended(now, dealt=self._main_deals)
        self._notice.turn(now, job, main if self._main_runs else None)
