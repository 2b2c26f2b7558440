"""The table of runs: jobs with parameters, metrics and results, sorted by any of them."""

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Query, Request, Response
from forge_schema.database.pool import Row
from forge_schema.job_filter import KEYS
from forge_schema.model.fields import Text, Word
from forge_schema.model.quantities import numbered
from forge_schema.model.results import (
    ANY_METRIC,
    FIELDS,
    NUMBERS,
    TABLES,
    ColumnUnknown,
    Experiment,
    Run,
    Runs,
    columns_of,
    differing,
    drawn_metric,
    flat,
    measured,
    missing_columns,
    require_columns,
)
from pydantic import BaseModel, Field

from forge_functions.dashboard.formats import COUNTERS, brief, sorted_word
from forge_functions.dashboard.page import page
from forge_functions.dashboard.routes.jobs import JobList
from forge_functions.dashboard.routes.reports import csv_answer
from forge_functions.dashboard.routes.runs.plots import Plots
from forge_functions.dashboard.session import SeesPages, Visitor
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

router = LazyRouter(prefix="/runs")
# How many runs, and columns of each kind, are shown.
SHOWN, PARAMETERS, METRICS, RESULTS, CHIPS = 200, 6, 4, 3, 12
SAVED = 1000
KINDS = (("", "last"), (".best", "best"))
# How many columns an address chooses.
MOST_COLUMNS = 40
# The size of a small curve.
WIDTH, HEIGHT = 96, 22


class AskedRuns(BaseModel):
    """Which runs an address asks for, in which order, and which of their columns."""

    q: Text = ""
    sort: Word | None = None
    down: bool = False
    columns: Annotated[Text, Field(max_length=1000)] = ""

    def table(self, shared: Services, who: Visitor, *, most: int) -> "Table":
        """Return the runs, up to a number."""
        return Table(shared, who, self.q.strip(), None, self.sort, self.down, self.columns, most)


@dataclass
class Table(JobList):
    """The runs that a filter finds, in the order of a column."""

    sort: str | None = None
    down: bool = False
    columns: str = ""
    most: int = SHOWN

    @property
    def part(self) -> Runs:
        """The runs and how many were found; none if the filter is invalid."""
        return self._sorted[0]

    @property
    def unknown(self) -> ColumnUnknown | None:
        """Why the runs are not sorted, if none of them has the column."""
        return self._sorted[1]

    @cached_property
    def _sorted(self) -> tuple[Runs, ColumnUnknown | None]:
        if self.fault:
            return Runs(items=[], found=0, more=False), None
        try:
            return self._read(self.sort), None
        except ColumnUnknown as error:
            return self._read(None), error

    def _read(self, sort: str | None) -> Runs:
        findings = self.shared.service(self.who).findings
        return findings.runs(
            self.text, sort=sort, descending=self.down, curve=self._drawable, count=self.most
        )

    @property
    def runs(self) -> list[Run]:
        """The runs that are shown."""
        return self.part.items

    @cached_property
    def drawn(self) -> str | None:
        """The metric of the small curves."""
        return drawn_metric(self.runs, self._drawable)

    @property
    def _drawable(self) -> list[str]:
        return self.wished or [*([self.sort] if self.sort else ()), ANY_METRIC]

    @cached_property
    def wished(self) -> list[str]:
        """The columns that the address asks for instead of the usual ones."""
        names = (name.strip() for name in self.columns.split(","))
        return list(dict.fromkeys(name for name in names if name))[:MOST_COLUMNS]

    @cached_property
    def missing(self) -> list[str]:
        """Those of them that none of the runs has."""
        return missing_columns(self.runs, self.wished) if self.runs else []

    @cached_property
    def chosen(self) -> list[str]:
        """Those that some run has."""
        return [name for name in self.wished if name not in self.missing]

    @property
    def choices(self) -> list[str]:
        """What may stand in the field of columns: those that are there, and one more."""
        keys = [f"{table}.{key}" for table in TABLES for key in columns_of(self.runs, table)]
        return [", ".join((*self.wished, key)) for key in (*keys, *FIELDS)]

    @cached_property
    def parameters(self) -> list[str]:
        """The parameters in which the runs differ."""
        return differing(self.runs)[:PARAMETERS]

    @cached_property
    def metrics(self) -> list[str]:
        """The metrics that say most; what only counts says nothing beside others."""
        metrics = measured(self.runs)
        return ([key for key in metrics if key not in COUNTERS] or metrics)[:METRICS]

    @cached_property
    def results(self) -> list[str]:
        """The keys of results with a single value."""
        values = [(run.result or {}).items() for run in self.runs]
        nested = {k for items in values for k, value in items if isinstance(value, (dict, list))}
        return [key for key in columns_of(self.runs, "result") if key not in nested][:RESULTS]

    @cached_property
    def numbers(self) -> list[tuple[str, str, str]]:
        """Columns of metrics and results: name, key and kind, none that repeats one of its key."""
        pairs = product(self.metrics, KINDS)
        found = [(f"metrics.{key}{part}", key, kind) for key, (part, kind) in pairs]
        found += [(f"result.{key}", key, "result") for key in self.results]
        first: dict[tuple[str, ...], str] = {}
        for name, key, _ in found:
            values = (key, *(str(brief(run.value(name))) for run in self.runs))
            first.setdefault(values, name)
        return [column for column in found if column[0] in {*first.values(), self.sort}]

    @property
    def revised(self) -> bool:
        """Whether any run has a revision."""
        return any(run.revision for run in self.runs)

    @property
    def plots(self) -> Plots | None:
        """Pictures of the runs by what they were given, and the column that they are sorted by."""
        best = [f"metrics.{key}.best" for key in self.metrics]
        results = [f"result.{key}" for key in self.results]
        sorted_by = [self.sort] if self.sort and not self.unknown else []
        targets = [name for name in (*sorted_by, *best, *results) if name not in self.given]
        made = (Plots(self.runs, self.given, target) for target in targets)
        return next((plots for plots in made if plots.axes), None)

    @property
    def given(self) -> list[str]:
        """The columns of parameters, but for those that only number jobs."""
        return [f"parameters.{key}" for key in self.parameters if key not in NUMBERS]

    @cached_property
    def experiments(self) -> list[Experiment]:
        """The newest experiments that the visitor may see, and the ones filtered for."""
        experiments = self.shared.service(self.who).findings.experiments()
        return list({experiment.experiment: experiment for experiment in experiments}.values())[
            :CHIPS
        ]

    @property
    def priced(self) -> bool:
        """Whether any run has a cost."""
        return any(run.cost is not None for run in self.runs)

    def only(self, key: str, value: str) -> str:
        """Return the table's address with only this value for a key; without it if it is set."""
        chosen = () if self.has(key, value) else (value,)
        wanted = {"q": str(self.wanted.having(key, *chosen)), "columns": self.columns}
        query = urlencode({name: text for name, text in wanted.items() if text})
        return f"/runs?{query}" if query else "/runs"

    def turn(self, column: str) -> dict[str, Any]:
        """Return the changes of the address that sort by a column, or the other way round."""
        sorted_by = self._is_sorted_by(column)
        return {"sort": column, "down": None if not sorted_by or self.down else "true"}

    def direction(self, column: str) -> str:
        """Return how the rows are sorted by a column, in the words of a table's heading."""
        return sorted_word(column, column if self._is_sorted_by(column) else None, down=self.down)

    def _is_sorted_by(self, column: str) -> bool:
        """Tell whether the address means a column, whose table it need not name: `lr`."""
        return self.sort in {column, column.partition(".")[2] or column}

    @staticmethod
    def numbered(run: Run) -> str:
        """Return the number of a run's job, with that of its task if it was one of many."""
        return numbered(run.job_id, run.task)

    @staticmethod
    def outline(run: Run) -> str:
        """Return the points of a run's small curve."""
        values = run.curve or []
        least = min(values, default=0.0)
        extent = max(values, default=0.0) - least
        across = WIDTH / max(len(values) - 1, 1)
        heights = [HEIGHT - 1 - (v - least) / (extent or 1) * (HEIGHT - 2) for v in values]
        return " ".join(f"{n * across:.1f},{y:.1f}" for n, y in enumerate(heights))


@router.get("")
def runs(
    request: Request, who: SeesPages, shared: Shared, asked: Annotated[AskedRuns, Query()]
) -> Response:
    """Show the newest runs that match a filter, or the first by a column."""
    table = asked.table(shared, who, most=SHOWN)
    order = {"sort": asked.sort, **({"down": "true"} if asked.down else {})} if asked.sort else {}
    order |= {"columns": asked.columns} if asked.columns else {}
    saved = f"/runs/runs.csv?{urlencode({'q': table.text, **order})}"
    return page(request, who, "runs.html", table=table, keys=KEYS, csv=saved, saved=SAVED)


@router.get("/runs.csv")
def save(who: SeesPages, shared: Shared, asked: Annotated[AskedRuns, Query()]) -> Response:
    """Return the newest thousand runs that match a filter, or the first, with all columns.

    Or with those that are chosen.
    """
    table = asked.table(shared, who, most=SAVED)
    rows = [_saved(run, table.wished) for run in table.runs]
    if table.unknown:
        raise table.unknown
    require_columns(table.runs, table.wished)
    names = dict.fromkeys(name for row in rows for name in row)
    return csv_answer([{name: row.get(name) for name in names} for row in rows], "runs")


def _saved(run: Run, columns: list[str]) -> Row:
    chosen = {name: run.value(name) for name in columns}
    return flat(chosen or run.model_dump(exclude={"curve"}))
