"""A small program that saves the last output of containers whose agent is gone.

A named pipe loses its content when no process has it open. Output that a job prints just before its
end, while no agent runs, would be lost. So this program keeps each pipe open for reading; once no
writer is left, it moves the rest to the log. A new agent may do the same at that moment: the log's
lock keeps the order. It also notes in the folder of each log when the agent was gone.

Standard library only, run with `python -I -S`: one process serves all jobs of an agent, which
writes a line with each pipe and its log to its stdin. It ends after its agent and its last pipe.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from pathlib import Path

from forge_worker.runners.process.output import Output

ORDERS = 0
# The file with the time, in seconds of the wall clock, which is the engine's.
GONE = "gone"
ENDED = 0  # poll reports the end of a pipe for any event mask


class PipeKeeper:
    """Keeps open the pipes that its agent names, until they end."""

    def __init__(self) -> None:
        self._heard = b""
        self._logs: dict[int, Path] = {}
        self._poll = select.poll()
        self._poll.register(ORDERS, select.POLLIN)
        self._listening = True

    def run(self) -> None:
        """Keep pipes until the agent is gone and none is left."""
        while self._listening or self._logs:
            for source, _ in self._poll.poll():
                if source == ORDERS:
                    self._listen()
                else:
                    self._close(source)

    def _listen(self) -> None:
        if not (order := os.read(ORDERS, 65536)):
            self._poll.unregister(ORDERS)
            self._listening = False
            now = str(time.time())
            for log in self._logs.values():
                with contextlib.suppress(OSError):  # the disk may be full
                    log.with_name(GONE).write_text(now)
        *lines, self._heard = (self._heard + order).split(b"\n")
        for line in lines:
            self._open(*map(Path, json.loads(line)))

    def _open(self, pipe: Path, log: Path) -> None:
        with contextlib.suppress(OSError):  # the job has ended already
            source = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._logs[source] = log
            self._poll.register(source, ENDED)

    def _close(self, source: int) -> None:
        self._poll.unregister(source)
        with contextlib.suppress(OSError):
            output = Output(source, self._logs.pop(source))
            output.drain()
            output.close()
        os.close(source)


def main() -> None:
    """Keep the pipes named on stdin open."""
    os.chdir("/")
    # A service manager signals every process of its unit; this one stays for the running jobs.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    PipeKeeper().run()


if __name__ == "__main__":
    main()
