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
NEW_STAGE = re.compile(r"Step \d+/\d+ : FROM ", re.IGNORECASE)
MADE = re.compile(r" ---> ([0-9a-f]{12,64})")
NOISE = re.compile(r" ---> Running in |Removing intermediate container ")


class BuildOutput:
    """Passes the lines on, and keeps how it went.

    `whole` tells that there is an image, `failure` why not, `last` has the last lines, and `parts`
    the images at the end of each stage but that of a whole build's last.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._made = ""
        self._stages: list[str] = []
        self.whole = False
        self.failure = ""
        self.last: deque[str] = deque(maxlen=LAST_LINES)

    @property
    def parts(self) -> list[str]:
        ends = self._stages if self.whole else [*self._stages, self._made]
        return list(dict.fromkeys(filter(None, ends)))

    def hear(self, step: dict[str, Any]) -> None:
        """Take one message of the engine."""
        self.failure = self.failure or str(step.get("error", ""))
        self.whole = self.whole or "ID" in (step.get("aux") or {})
        for line in str(step.get("stream", "")).splitlines():
            self._line(COLOUR.sub("", line).rstrip())

    def _line(self, line: str) -> None:
        if NEW_STAGE.match(line):
            self._stages.append(self._made)
            self._made = ""
        if made := MADE.match(line):
            self._made = made[1]
        elif line and not NOISE.match(line):
            self.last.append(line[:LONGEST_LINE])
            self._say(line)
