"""Check the reports on a run's data against the same sums in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.check.violation import by_hand
from support.past.report_sums import SINGLE, VIEWS, Sums, computed, difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.evidence.evidence import Evidence, Row


def _told(evidence: Evidence) -> Iterator[tuple[str, Row]]:
    sums = Sums(evidence.rows, evidence.rows("SELECT forge_now() AS now")[0]["now"])
    for name in (*SINGLE, *VIEWS):
        shown = evidence.rows(f"SELECT * FROM {name}")
        try:
            wanted, keys = computed(sums, name, _columns(evidence, name))
        except KeyError as error:
            yield f"{name}: the tables tell of {error}, and do not have it", {}
            continue
        if differs := difference(shown, wanted, keys):
            yield f"{name}: {differs}", {}


def _columns(evidence: Evidence, name: str) -> list[str]:
    of_view = (
        "SELECT attname FROM pg_attribute"
        f" WHERE attrelid = '{name}'::regclass AND attnum > 0 ORDER BY attnum"
    )
    return [row["attname"] for row in evidence.rows(of_view)]


AS_COMPUTED = by_hand("each report tells what the tables come to", _told)
