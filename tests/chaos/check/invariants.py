"""All invariants in one table, and the check of a run against them.

The run's database must have had the witness from the beginning (`witness.install`), and its direct
workers a connection of their own name (`PGAPPNAME`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.check.ends import ENDS_OF_JOBS
from chaos.check.evidence import evidence
from chaos.check.leases import LEASES
from chaos.check.objects import OBJECTS
from chaos.check.promises import PROMISES
from chaos.check.rest import REST
from chaos.check.sums import SUMS
from chaos.check.violation import Invariant, Violation

if TYPE_CHECKING:
    from pathlib import Path

INVARIANTS: tuple[Invariant, ...] = (
    *PROMISES,
    *LEASES,
    *ENDS_OF_JOBS,
    *SUMS,
    *OBJECTS,
    *REST,
)


def violations(database_url: str, store_url: str, history_path: Path) -> list[Violation]:
    """Check a run that has come to rest; an empty list is what one hopes for.

    Raises:
        psycopg.errors.UndefinedTable: the database had no witness.
    """
    with evidence(database_url, store_url, history_path) as found:
        return [broken for one in INVARIANTS for broken in one.look(found)]
