"""An invariant, and what is found where it does not hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chaos.check.evidence import Evidence, Row


@dataclass(frozen=True)
class Violation:
    """One thing that must not be; the ids are those of what it is about, where it is about one."""

    invariant: str
    says: str
    job_id: int | None = None
    token: int | None = None


@dataclass(frozen=True)
class Invariant:
    """A sentence that must hold, and the look that finds what contradicts it."""

    sentence: str
    look: Callable[[Evidence], Iterator[Violation]]


def by_sql(sentence: str, query: str) -> Invariant:
    """Make an invariant of a query whose every row is a violation.

    A row has `says`, and `job_id` and `token` where it is about one.
    """

    def look(evidence: Evidence) -> Iterator[Violation]:
        for row in evidence.rows(query):
            yield _violation(sentence, row)

    return Invariant(sentence, look)


def by_hand(sentence: str, find: Callable[[Evidence], Iterator[tuple[str, Row]]]) -> Invariant:
    """Make an invariant of a function that finds violations: what it says, and of which row."""

    def look(evidence: Evidence) -> Iterator[Violation]:
        for says, row in find(evidence):
            yield _violation(sentence, {**row, "says": says})

    return Invariant(sentence, look)


def _violation(sentence: str, row: Row) -> Violation:
    return Violation(sentence, row["says"], row.get("job_id"), row.get("token"))
