"""What a notebook shows of jobs and lists, and what a terminal shows instead."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from forge_schema.model.job import JobStatus
from forge_schema.model.quantities import duration_text
from forge_schema.model.results import Run, flat
from forge_schema.tables import names_of, numeric
from pydantic import BaseModel

from forge_client.backend import Backend
from forge_client.connection import require_extra
from forge_client.errors import Outage
from forge_client.results.endings import ending

if TYPE_CHECKING:
    import pandas as pd


QUICKEST_S = 0.2
MOST_ROWS = 50
Show = Callable[[Sequence[JobStatus]], None]
BAR = (
    '<div style="background:#8884;width:12em;height:.6em;border-radius:.3em">'
    '<div style="background:#2a7;width:{percent}%;height:100%;border-radius:.3em"></div></div>'
)
T = TypeVar("T")


def line(status: JobStatus) -> str:
    """Return a job's state in one line of text."""
    if status.terminal:
        return ending(status)
    done = "" if status.progress is None else f", {status.progress:.0%} done"
    where = f" on {', '.join(status.workers or [status.worker])}" if status.worker else ""
    return f"job {status.job_id} {status.name!r} is {status.state}{where}{done}"


def jobs_html(statuses: Sequence[JobStatus]) -> str:
    """Return a table of jobs, each with its progress."""
    rows = [
        f"<tr><td>{status.job_id}</td><td>{escape(status.name)}</td>"
        f"<td>{escape(status.state)}</td><td>{_bar(status)}</td>"
        f"<td>{escape(line(status))}</td></tr>"
        for status in statuses
    ]
    return f"<table>{_head(['job', 'name', 'state', 'progress', ''])}{''.join(rows)}</table>"


def _bar(status: JobStatus) -> str:
    done = 1.0 if status.state == "succeeded" else status.progress
    return "" if done is None else BAR.format(percent=round(100 * done))


def rows_html(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of rows, with the columns that hold one value in some row."""
    names = list(dict.fromkeys(
        name for row in rows for name, value in row.items() if _is_shown(value)
    ))  # fmt: skip
    shown = [
        "<tr>" + "".join(f"<td>{escape(_cell(row.get(name)))}</td>" for name in names) + "</tr>"
        for row in rows[:MOST_ROWS]
    ]
    more = len(rows) - len(shown)
    note = f"<p>… and {more} more</p>" if more > 0 else ""
    return f"<table>{_head(names)}{''.join(shown)}</table>{note}"


def _is_shown(value: object) -> bool:
    return isinstance(value, str | int | float | datetime)


def _cell(value: object) -> str:
    match value:
        case float():
            return f"{value:.6g}"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}"
        case _:
            return str(value) if _is_shown(value) else ""


def _head(names: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<th>{escape(name)}</th>" for name in names) + "</tr>"


def follow(backend: Backend, job_ids: Sequence[int], timeout: float | None) -> None:
    """Show jobs until all have ended: in place in a notebook, else a line for each change.

    Raises:
        TimeoutError: some jobs have not ended in time. They continue.
    """
    show = _in_a_notebook() or _in_a_terminal()
    deadline = None if timeout is None else time.monotonic() + timeout
    pause, known, outage = QUICKEST_S, None, Outage()
    while True:
        by_id = outage.ask(lambda: backend.statuses(job_ids))
        if by_id is not None:
            statuses = [by_id[job_id] for job_id in job_ids if job_id in by_id]
            if statuses != known:
                show(statuses)
                pause, known = QUICKEST_S, statuses
            if all(status.terminal for status in statuses):
                return
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError(f"some jobs have not ended within {duration_text(timeout or 0)}")
        time.sleep(pause)
        pause = min(pause * 1.3, backend.slowest_s)


def _in_a_terminal() -> Show:
    printed: dict[int, str] = {}

    def show(statuses: Sequence[JobStatus]) -> None:
        for status in statuses:
            if printed.get(status.job_id) != (text := line(status)):
                printed[status.job_id] = text
                print(text)  # noqa: T201 - it was asked to

    return show


def _in_a_notebook() -> Show | None:
    """Return what shows jobs in the output of a notebook's cell; None elsewhere."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if not hasattr(shell, "kernel"):
        return None
    book: Any = import_module("IPython.display")
    handle = book.display(book.HTML(""), display_id=True)

    def show(statuses: Sequence[JobStatus]) -> None:
        handle.update(book.HTML(jobs_html(statuses)))

    return show


class Rows(list[T]):
    """A list; `to_frame` makes a pandas data frame of it, and a notebook shows it as a table."""

    def _repr_html_(self) -> str:
        if self and all(isinstance(row, JobStatus) for row in self):
            return jobs_html([row for row in self if isinstance(row, JobStatus)])
        return rows_html([flat(_plain(row)) for row in self])

    def to_frame(self) -> "pd.DataFrame":
        """Return a data frame with a column for each field.

        A field that holds an object, such as a sweep's `parameters`, becomes a column for each of
        its keys: `parameters.lr`. NaN and infinities, which JSON has as text, become numbers, and
        integers of more than 64 bits floats. Runs have a `curve` only if one was asked for.

        Raises:
            ClientError: pandas is not installed.
        """
        require_extra("pandas", "frames", "make data frames")
        import pandas as pd  # noqa: PLC0415 - only with the extra

        rows = [flat(_plain(row)) for row in self]
        frame = pd.DataFrame(rows, columns=names_of(rows))
        for name in frame.select_dtypes(exclude=["number", "datetimetz"]):
            frame[name] = numeric([*frame[name]])
        return frame


class FoundRows(Rows[T]):
    """Some of the rows that were `found`; if there are `more`, older ones match too."""

    def __init__(self, rows: Iterable[T], *, found: int, more: bool) -> None:
        super().__init__(rows)
        self.found = found
        self.more = more


def _plain(row: Any) -> dict[str, Any]:  # noqa: ANN401 - a record, or a row of a report
    match row:
        case Run(curve=None):
            return row.model_dump(exclude={"curve"})
        case BaseModel():
            return row.model_dump()
        case Mapping():
            return dict(row)
        case _:
            return dict(vars(row))
