"""The table of `docs/grounds.md`: a run replaces the rows that it has seen."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from grounds.run import Row

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

HEAD = "| ground | what ran | result | versions | seconds | date |\n|---|---|---|---|---|---|\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*")


def lines(rows: Iterable[Row]) -> str:
    """Return a table in Markdown."""
    return HEAD + "".join(f"| {' | '.join(map(str, _cells(row)))} |\n" for row in rows)


def merged(page: str, rows: Iterable[Row]) -> str:
    """Return the page with these rows in its table, those of before after them in their order."""
    found = TABLE.search(page)
    if found is None:
        raise ValueError(f"the page has no table that begins with {HEAD!r}")
    kept = {row.key: row for row in _read(found[0])}
    kept |= {row.key: row for row in rows}
    return page[: found.start()] + lines(kept.values()) + page[found.end() :]


def write(page: Path, rows: Iterable[Row]) -> None:
    """Put the rows into the page's table."""
    page.write_text(merged(page.read_text("utf-8"), rows), encoding="utf-8")


def _cells(row: Row) -> tuple[str | int, ...]:
    return row.ground, row.part, row.result, row.versions, row.seconds, row.date


def _read(table: str) -> list[Row]:
    rows = [
        line.removeprefix("| ").removesuffix(" |").split(" | ") for line in table.splitlines()[2:]
    ]
    return [Row(one, part, result, of, int(s), date) for one, part, result, of, s, date in rows]
