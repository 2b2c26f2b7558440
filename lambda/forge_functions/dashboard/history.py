"""The last hours, days or weeks of queues and workers, as charts and as a table of the same."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from forge_schema.database.pool import Row
from forge_schema.model.quantities import HOUR, MINUTE
from forge_schema.read.series import Span

from forge_functions.dashboard.formats import duration, exact, number
from forge_functions.dashboard.words import t

# What is in use has one colour in all charts, and so has what is there for it.
TONES = {
    **dict.fromkeys(("running", "gpus_held", "mean_s"), "--chart-1"),
    **dict.fromkeys(("waiting", "longest_s"), "--chart-2"),
    **dict.fromkeys(("workers", "gpus"), "--chart-3"),
}


@dataclass(frozen=True)
class Chart:
    """A title, and the numbers under it."""

    title: str
    data: dict[str, object]


@dataclass(frozen=True)
class Column:
    """A column of the table."""

    title: str
    text: Callable[[Row], object]


@dataclass(frozen=True)
class History:
    """What is shown of the rows of `use_over_time`."""

    span: Span
    all_rows: Sequence[Row]

    @cached_property
    def rows(self) -> Sequence[Row]:
        """The rows since there was anything."""
        said = (i for i, row in enumerate(self.all_rows) if any(row[name] for name in TONES))
        return self.all_rows[next(said, 0) :]

    @cached_property
    def of_queues(self) -> tuple[list[Chart], list[Column]]:
        """What waited and ran, and how long it had waited."""
        unit, seconds = self._unit()
        charts = [
            self._chart(
                t("Jobs waiting and running"), {"waiting": t("Waiting"), "running": t("Running")}
            ),
            self._chart(
                t("How long the jobs that began had waited, {unit}", unit=unit),
                {"mean_s": t("On average"), "longest_s": t("Longest")},
                per=seconds,
            ),
        ]
        columns = [
            _count("waiting", t("Waiting")),
            _count("running", t("Running")),
            Column(t("Began"), lambda row: number(row["begun"])),
            Column(t("Waited on average"), lambda row: duration(row["mean_s"])),
            Column(t("Longest wait"), lambda row: duration(row["longest_s"])),
        ]
        return charts, self._since(columns)

    @cached_property
    def of_workers(self) -> tuple[list[Chart], list[Column]]:
        """What was in use, and what was there."""
        jobs = {"running": t("Jobs running"), "workers": t("Workers online")}
        gpus = {"gpus_held": t("GPUs in use"), "gpus": t("GPUs there")}
        charts = [self._chart(t("Jobs running and workers"), jobs)]
        columns = [_count(name, title) for name, title in jobs.items()]
        if any(row["gpus"] or row["gpus_held"] for row in self.rows):
            charts.insert(0, self._chart(t("GPUs in use and idle"), gpus))
            columns += [_count(name, title) for name, title in gpus.items()]
        return charts, self._since(columns)

    @property
    def of_all(self) -> tuple[list[Chart], list[Column]]:
        """What waited, what ran and who was there, in two charts."""
        (waited, *_), columns = self.of_queues
        (*_, there), more = self.of_workers
        known = {column.title for column in columns}
        return [waited, there], [*columns, *(one for one in more if one.title not in known)]

    @property
    def empty(self) -> bool:
        """Whether nothing waited or ran at all."""
        return not any(row["waiting"] or row["running"] for row in self.rows)

    def _since(self, columns: list[Column]) -> list[Column]:
        return [Column(t("From"), lambda row: exact(row["at"])), *columns]

    def _chart(self, title: str, named: dict[str, str], per: float = 1) -> Chart:
        series = [
            {
                "label": label,
                "tone": TONES[name],
                "values": [
                    None if row[name] is None else round(row[name] / per, 2) for row in self.rows
                ],
            }
            for name, label in named.items()
        ]
        return Chart(title, {"x": self._middles, "series": series, **self._bounds})

    @property
    def _middles(self) -> list[float]:
        """An average is drawn in the middle of its time."""
        return [(row["at"].timestamp() + row["until"].timestamp()) / 2 for row in self.rows]

    @property
    def _bounds(self) -> dict[str, object]:
        since, until = self.rows[0]["at"], self.rows[-1]["until"]
        return {"range": [since.timestamp(), until.timestamp()]}

    def _unit(self) -> tuple[str, float]:
        longest = max((row["longest_s"] or 0 for row in self.rows), default=0)
        if longest >= 3 * HOUR:
            return t("in hours"), HOUR
        return (t("in minutes"), MINUTE) if longest >= 3 * MINUTE else (t("in seconds"), 1)


def _count(name: str, title: str) -> Column:
    return Column(title, lambda row: number(row[name], 0 if row[name] == int(row[name]) else 1))
