"""Places in a job's log, as pages hand them back: which chunk, and how much of it was shown."""

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
    """A byte of a log: `offset` counts within the chunk."""

    token: int
    rank: int
    number: int
    offset: int

    def __str__(self) -> str:
        return f"{self.token}.{self.rank}.{self.number}.{self.offset}"

    @property
    def chunk(self) -> tuple[int, int, int]:
        """The chunk, as the index names it."""
        return self.token, self.rank, self.number

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a place.

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
                f"{text!r} is no place in a log",
                hint="reload the page",
            )
        return cls(*numbers)


def beginning(rank: int) -> LogPlace:
    """Return the place before all that a rank wrote."""
    return LogPlace(0, rank, -1, 0)


def end(rank: int) -> LogPlace:
    """Return a place after all that a rank wrote."""
    return LogPlace(LARGEST, rank, INTEGER, 0)
