"""The rows of a report as a table, JSON, CSV or Parquet."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from forge_schema.model.quantities import MIB, counted, duration_text, names_text, size_text
from forge_schema.model.reading import REPORT_SINCE
from forge_schema.read.report_definitions import REPORTS, Report, over_time

from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format, brief, plain, shortened
from forge_client.cli.show.plot import sparkline

if TYPE_CHECKING:
    from forge_client.backend import Backend

Row = Mapping[str, Any]
MOST, ON_SCREEN, WIDEST = 1000, 25, 60
ALL, COST = "all", "cost"
# Columns that are always shown, names of hidden ones to list, and digits of a digest.
FIRST, SHOWN, DIGITS = 3, 6, 12
# Of a value, where no terminal is too narrow for it.
LONGEST_PIPED = 200
WITH_UNIT: Mapping[str, Callable[[float], str]] = {
    "s": duration_text,
    "mb": lambda size: size_text(size * MIB),
}
DIGEST = re.compile(r"[0-9a-f]{64}")


class ReportFormat(StrEnum):
    """How to print a report."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


class ReportPart(NamedTuple):
    """A part of a report: its span, grouped by what, how many rows; None is the default."""

    since: str | None = None
    until: str | None = None
    by: Sequence[str] | None = None
    most: int | None = None


def list_names(backend: "Backend", form: ReportFormat) -> None:
    """Print the names of the reports, and what each is about."""
    # A newer server may have others.
    known = [(name, REPORTS.get(name)) for name in backend.reports()]
    _show([{"report": name, "about": of.about if of else ""} for name, of in known], form)


def show_report(backend: "Backend", name: str, part: ReportPart, form: ReportFormat) -> None:
    """Print the rows of a report, and say which are not among them."""
    on_screen = form is ReportFormat.TABLE and sys.stdout.isatty()
    most = part.most or (ON_SCREEN if on_screen else MOST)
    bound = _bound(name, part)
    columns = _columns(part.by)
    report = REPORTS.get(name)
    # What sums up has few rows, of which the others count too.
    read = max(most, MOST) if report and on_screen and (report.summed or columns) else most
    rows = backend.report(name, since=bound, until=part.until, by=columns, count=read)
    _show(rows[:most], form)
    all_of_it = "; --since all shows the whole history" if bound and part.since is None else ""
    if not rows:
        ends = f" until {part.until}" if part.until else ""
        narration.say("no rows" + (f" since {bound}" if bound else "") + ends + all_of_it)
        return
    if most < len(rows) < read:
        narration.say(f"{most} of {counted(len(rows), 'row')}; --count shows more")
    elif len(rows) >= most:
        narration.say(f"there may be more than {counted(most, 'row')}; --count shows more")
    if report and form is ReportFormat.TABLE and 1 < len(rows) < max(read, most + 1):
        _sum_up(report, name, rows)
    if all_of_it:
        narration.say(f"since {bound}{all_of_it}")
    if name == COST and form is ReportFormat.TABLE and not any(row[COST] for row in rows):
        narration.say("none of these workers has a price: start them with --price-per-hour")


def _sum_up(report: Report, name: str, rows: Sequence[Row]) -> None:
    """Tell the totals, and draw the first of them over time."""
    added = report.added_up(name, list(rows[0]))
    totals = {column: sum(float(row[column] or 0) for row in rows) for column in added}
    totals = {column: total for column, total in totals.items() if total}
    if not totals:
        return
    drawn = next(iter(totals))
    if over := over_time(rows, drawn):
        first, *_, last = over
        curve = sparkline(_narrowed([*over.values()], WIDEST), least=0)
        narration.say(f"{drawn} from {first} to {last}: {curve}")
    told = [f"{column} {total:,.4g}" for column, total in totals.items()]
    narration.say(f"in all: {names_text(told, SHOWN)}")


def _narrowed(values: Sequence[float], most: int) -> list[float]:
    """Return the sums of as many neighbours as it takes for at most so many of them."""
    each = -(-len(values) // most)
    return [sum(values[at : at + each]) for at in range(0, len(values), each)]


def _bound(name: str, part: ReportPart) -> str | None:
    """Return how far back a report goes."""
    if part.since is not None:
        return None if part.since == ALL else part.since
    # Nobody who names its end means the days before now.
    report = REPORTS.get(name)
    summed = report.summed or (part.by and not report.now) if report else part.by
    return REPORT_SINCE if summed and part.until is None else None


def _columns(by: Sequence[str] | None) -> list[str]:
    return [column.strip() for columns in by or () for column in columns.split(",")]


def _show(rows: Sequence[dict[str, Any]], form: ReportFormat) -> None:
    match form:
        case ReportFormat.CSV:
            from forge_schema.tables import write_csv  # noqa: PLC0415 - with pydantic

            write_csv(rows, _column_names(rows), sys.stdout)
        case ReportFormat.PARQUET:
            write_parquet(rows, sys.stdout.buffer)
        case _:
            names = {_title(key): key for key in _column_names(rows)}
            columns: list[Column] = [(title, _reader(key)) for title, key in names.items()]
            empty = [title for title, read in columns if not any(map(read, rows))]
            # What a report is about comes first in it.
            least = [title for title in reversed([*names][FIRST:]) if title not in empty]
            output.show(rows, columns, Format(form), [*empty, *least])
            hidden = output.dropped(rows, columns, [*empty, *least])
            if form is ReportFormat.TABLE:
                _say_hidden([names[it] for it in hidden if it not in empty], "not shown here")
                _say_hidden([names[it] for it in hidden if it in empty], "without a value")


def _say_hidden(columns: Sequence[str], why: str) -> None:
    if columns:
        narration.say(f"{why}: {names_text(columns, SHOWN)}; -o csv has all", "dim")


def _title(key: str) -> str:
    """Return a column's title: `WAITED` of `waited_s`, whose values have their units."""
    name, _, unit = key.rpartition("_")
    return (name if name and unit in WITH_UNIT else key).replace("_", " ").upper()


def _reader(key: str) -> Callable[[dict[str, Any]], object]:
    with_unit = WITH_UNIT.get(key.rpartition("_")[2]) if "_" in key else None
    if with_unit is None:
        return lambda row: _short(row[key])
    # None of it, as of a share of a worker's memory, is not said.
    return lambda row: with_unit(float(row[key])) if row[key] else ""


def _short(value: object) -> str:
    """Return a value on a line; on a terminal without what only programs need of it."""
    if not sys.stdout.isatty():
        return shortened(brief(value), LONGEST_PIPED)
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M")
    if isinstance(value, str) and DIGEST.fullmatch(value):
        return value[:DIGITS]
    return brief(value)


def write_parquet(rows: Sequence[Row], to: BinaryIO) -> None:
    """Write the rows as one Parquet file; lists of text stay lists, objects become JSON text.

    Raises:
        ClientError: pyarrow is not installed.
    """
    from forge_client.connection import require_extra  # noqa: PLC0415 - with pydantic

    require_extra("pyarrow", "parquet", "write Parquet")
    import pyarrow as pa  # noqa: PLC0415 - only with the extra
    from pyarrow import parquet  # noqa: PLC0415 - as above

    columns = {name: _parquet_column([row[name] for row in rows]) for name in _column_names(rows)}
    # Build it in memory first: an incomplete file is not valid Parquet.
    buffer = pa.BufferOutputStream()
    parquet.write_table(pa.table(columns), buffer)
    to.write(buffer.getvalue().to_pybytes())


def _column_names(rows: Sequence[Row]) -> list[str]:
    return list(rows[0]) if rows else []


def _parquet_column(values: Iterable[object]) -> list[object]:
    from forge_schema.tables import numeric  # noqa: PLC0415 - with pydantic

    return numeric(
        [json.dumps(plain(value)) if isinstance(value, Mapping) else value for value in values]
    )
