"""Invariants and their violations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chaos.evidence.evidence import Evidence, Row


@dataclass(frozen=True)
class Violation:
    """A broken invariant, with the ids of the objects concerned, if any."""

    invariant: str
    says: str
    job_id: int | None = None
    token: int | None = None


@dataclass(frozen=True)
class Invariant:
    """A sentence that must be true, and the check that finds counterexamples."""

    sentence: str
    look: Callable[[Evidence], Iterator[Violation]]


def by_sql(sentence: str, query: str) -> Invariant:
    """Make an invariant from a query that returns one row per violation.

    A row has `says`, and `job_id` and `token` if it concerns a job.
    """

    def look(evidence: Evidence) -> Iterator[Violation]:
        for row in evidence.rows(query):
            yield _violation(sentence, row)

    return Invariant(sentence, look)


def by_hand(sentence: str, find: Callable[[Evidence], Iterator[tuple[str, Row]]]) -> Invariant:
    """Make an invariant from a function that yields the text and the row of each violation."""

    def look(evidence: Evidence) -> Iterator[Violation]:
        for says, row in find(evidence):
            yield _violation(sentence, {**row, "says": says})

    return Invariant(sentence, look)


def _violation(sentence: str, row: Row) -> Violation:
    return Violation(sentence, row["says"], row.get("job_id"), row.get("token"))
