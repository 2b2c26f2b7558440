"""What an engine's builder says while it builds."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

LAST_LINES = 10
LONGEST_LINE = 300
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MADE = re.compile(r" ---> ([0-9a-f]{12,64})")
NOISE = re.compile(r" ---> Running in |Removing intermediate container ")


class BuildOutput:
    """Passes the lines on, and keeps how it went.

    `failure` tells why there is no image, `last` has the last lines, and `ends` the images at the
    ends of the stages: these the engine tells beside the lines. `printed` is what a line said was
    made since, and the build's own commands print lines too.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.ends: list[str] = []
        self.printed = ""
        self.failure = ""
        self.last: deque[str] = deque(maxlen=LAST_LINES)

    def hear(self, step: dict[str, Any]) -> None:
        """Take one message of the engine."""
        self.failure = self.failure or str(step.get("error", ""))
        if end := (step.get("aux") or {}).get("ID"):
            self.ends.append(end)
            self.printed = ""
        for line in str(step.get("stream", "")).splitlines():
            self._line(COLOUR.sub("", line).rstrip())

    def _line(self, line: str) -> None:
        if made := MADE.match(line):
            self.printed = made[1]
        elif line and not NOISE.match(line):
            self.last.append(line[:LONGEST_LINE])
            self._say(line)
