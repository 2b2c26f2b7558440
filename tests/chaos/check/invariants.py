"""All invariants in one table, and the check of a run against them.

Before the first lease, a run installs the witness in its database (`witness.install`). It starts
each worker with direct access with `PGAPPNAME` set to the worker's name, so that the witness
knows whose connection ended a lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.check.cron import CRON
from chaos.check.ends import ENDS_OF_JOBS
from chaos.check.leases import LEASES
from chaos.check.limits import LIMITS
from chaos.check.objects import OBJECTS
from chaos.check.programs import PROGRAMS
from chaos.check.promises import PROMISES
from chaos.check.reports import AS_COMPUTED
from chaos.check.rest import REST
from chaos.check.runs import RUNS
from chaos.check.sums import SUMS
from chaos.check.urgency import URGENCY
from chaos.check.violation import Invariant, Violation
from chaos.evidence.evidence import evidence
from chaos.evidence.witness import install

if TYPE_CHECKING:
    from pathlib import Path

INVARIANTS: tuple[Invariant, ...] = (
    *PROMISES,
    *LEASES,
    *RUNS,
    *LIMITS,
    *URGENCY,
    *CRON,
    *ENDS_OF_JOBS,
    *SUMS,
    AS_COMPUTED,
    *OBJECTS,
    *PROGRAMS,
    *REST,
)


def violations(database_url: str, store_url: str, history_path: Path) -> list[Violation]:
    """Check a finished run; return the violations, ideally none."""
    install(database_url)
    with evidence(database_url, store_url, history_path) as found:
        return [broken for one in INVARIANTS for broken in one.look(found)]
