"""The reporting views, column by column."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from forge_schema.read.report_definitions import REPORTS, Report
from forge_schema.read.reports import described
from tabular import table

HEAD = """\
# Views

Generated from the code. [Reports](../reporting.md) says who may read them, and what counts as
useful. *Time* is the column that `--since` bounds, *by* are those that `--by` takes, and *shows*
are the columns of such a group. Columns that end in `_s` are seconds, those that end in `_at` are
times. Days are UTC days.
"""


def page() -> str:
    """Return the page about the reporting views."""
    views = described()
    return "\n".join([HEAD, *(part for name in views for part in _view(name, views[name]))])


def _view(name: str, view: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {name}\n"
    report = REPORTS[name]
    about = f"{report.about[0].upper()}{report.about[1:]}."
    yield " ".join(filter(None, [about, view.get("about"), f"{_bounds(report)}\n"]))
    rows = [(_codes(names.split(", ")), meaning) for names, meaning in view["columns"].items()]
    yield table(("column", "meaning"), rows)
    yield view.get("notes", "")


def _bounds(report: Report) -> str:
    time = f"Time: `{report.time}`. " if report.time else ""
    return f"{time}By: {_codes(report.groups)}; shows {_codes(report.measures)}."


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
