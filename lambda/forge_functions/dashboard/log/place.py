"""Positions in a job's log, which pages send back: a chunk, and how much of it was shown."""

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self

from forge_schema.model.fields import INTEGER, LARGEST

from forge_functions.errors import Refused

LARGEST_RANK = 2**15 - 1
_FORM = re.compile(r"(\d{1,19})\.(\d{1,5})\.(-1|\d{1,10})\.(\d{1,10})")


@dataclass(frozen=True, order=True)
class LogPlace:
    """A position in a log: a chunk, and the `offset` in bytes within it."""

    token: int
    rank: int
    number: int
    offset: int

    def __str__(self) -> str:
        return f"{self.token}.{self.rank}.{self.number}.{self.offset}"

    @property
    def chunk(self) -> tuple[int, int, int]:
        """The chunk's position in the index."""
        return self.token, self.rank, self.number

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a position.

        Raises:
            Refused: 422 for anything else.
        """
        found = _FORM.fullmatch(text)
        numbers = [int(part) for part in found.groups()] if found else []
        most = (LARGEST, LARGEST_RANK, INTEGER, INTEGER)
        if not found or any(n > limit for n, limit in zip(numbers, most, strict=True)):
            raise Refused(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "invalid",
                f"{text!r} is not a position in a log",
                hint="reload the page",
            )
        return cls(*numbers)


def beginning(rank: int) -> LogPlace:
    """Return the position before all output of a rank."""
    return LogPlace(0, rank, -1, 0)


def end(rank: int) -> LogPlace:
    """Return a position after all output of a rank."""
    return LogPlace(LARGEST, rank, INTEGER, 0)
