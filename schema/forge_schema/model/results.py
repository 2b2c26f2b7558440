"""Results of jobs: result, tests, metrics, the points of sweeps, and runs."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from math import isfinite
from typing import Any, Literal

from pydantic import Field

from forge_schema.model.errors import ForgeError
from forge_schema.model.fields import NOT_FINITE, NotFinite, Open, Record, ShownCounts, ShownState
from forge_schema.model.quantities import names_text
from forge_schema.model.states import PROGRESS, Reason, Verdict

# The fields of a run that are columns as they are.
FIELDS = (
    *("job_id", "name", "state", "experiment", "sweep", "owner", "attempt", "reason"),
    *("seconds", "gpu_seconds", "cost", "revision", "submitted_at", "finished_at", "tags"),
)
# Those of a job of a sweep: what it took.
SPENT = ("seconds", "gpu_seconds", "energy_j", "cost", "last_seconds")
TABLES = ("parameters", "metrics", "result")
KINDS = ("best", "min", "max", "last")
# Parameters that only number: the jobs of a benchmark's point from 1, a search's trials from 0.
NUMBERS = REPEAT, TRIAL = "repeat", "trial"
# Instead of a metric's name: whichever metric is the best to draw.
ANY_METRIC = "*"
# The words of a metric's name, also of one like `valLoss`.
WORDS = re.compile(r"[fF]1|[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# The least value of such a metric is its best.
TIMES = frozenset({"latency", "seconds", "time"})
LOSSES = frozenset(
    {
        *("loss", "losses", "err", "error", "errors", "nll", "bce", "kl", "kld", "divergence"),
        *("perplexity", "ppl", "brier", "regret", "mae", "mse", "rmse", "msle", "rmsle", "mape"),
        *("smape", "wer", "cer", "eer", "fid", "lpips"),
    }
)
# Of one with such a word, the greatest.
SCORES = frozenset(
    {
        *("acc", "accuracy", "precision", "recall", "f1", "auc", "auroc", "auprc", "ap", "map"),
        *("iou", "miou", "dice", "bleu", "rouge", "elbo", "psnr", "ssim", "reward", "score"),
    }
)
# Such an end is enough: `valloss`, `runtime`.
LOWER = re.compile(r"(loss|err|error|perplexity|ppl|mae|mse|rmse|wer|cer|latency|seconds|time)$")
# How many columns a message names.
NAMED = 8
# What nobody compares: longer values, and what a function returned, as bytes for Python.
LONG, PICKLED = 200, "pickled"
# How many runs are sorted or grouped: the newest that match.
MOST_RUNS = 10_000
NEXT = "path and query of the next page of runs that are not sorted"
GroupedBy = Literal["experiment", "sweep", "owner", "team"]


class ColumnUnknown(ForgeError):
    """None of some runs has a column of this name."""


class Result(Record):
    """The JSON object that a job reported as its result; None if it reported none."""

    attempt: int | None = None
    values: dict[str, Any] | None = None
    created_at: datetime | None = None


class MetricLine(Record):
    """One line of a job's metrics file, ordered by `token` and `number`."""

    token: int = Field(repr=False)
    attempt: int
    rank: int
    number: int
    at: datetime
    step: float | None = None
    values: dict[str, Any]


class LastMetric(Record):
    """The last value of a metric."""

    key: str
    value: Any
    step: float | None = None
    attempt: int
    at: datetime


class JobTest(Record):
    """The result of one test, numbered from 0 in the order of the report."""

    number: int
    attempt: int
    suite: str
    name: str
    verdict: Open[Verdict]
    seconds: float | None = None
    message: str | None = None


class Curve(Record):
    """One curve of a chart; `gpu` is the UUID if it belongs to a GPU.

    Each point summarises a run of values; `t` (Unix seconds) and `step` are those of the last.
    `count` is the number of finite values read. `step` is empty for samples. The others are None
    where a metric has no finite number, which is a gap. `newest` is the last value of a metric as
    the job wrote it: a number, `NaN`, `Infinity` or `-Infinity`. A superseded curve has an
    `attempt`.
    """

    source: Literal["metric", "sample"]
    key: str
    gpu: str | None = None
    count: int
    t: list[float]
    step: list[float | None]
    min: list[float | None]
    avg: list[float | None]
    max: list[float | None]
    last: list[float | None]
    newest: float | NotFinite | None = None
    attempt: int | None = None


class Join(Record):
    """Where a later attempt begins: its first step, and the time `t` (Unix seconds)."""

    attempt: int
    step: float | None = None
    t: float


class Series(Record):
    """The metrics of a job and the resource samples of an attempt.

    `attempt` is the newest that has any, or None; `until` is its end, or now while it is `running`;
    `began` is the start of the first one whose metrics are in it.
    Without a wanted attempt, the metrics go over all attempts: `joins` says where later ones begin.
    Values that a resumed attempt reported again are in `superseded`, as the earlier ones reported
    them. `left_off` counts curves not returned.
    """

    attempt: int | None = None
    rank: int = 0
    began: datetime | None = None
    since: datetime | None = None
    until: datetime | None = None
    running: bool = False
    left_off: int = 0
    items: list[Curve] = Field(default_factory=list)
    superseded: list[Curve] = Field(default_factory=list)
    joins: list[Join] = Field(default_factory=list)


class SweepCancelled(Record):
    """The number of jobs cancelled at once, and of those that their workers were asked to end."""

    cancelled: int
    running: int


class Measured(Record):
    """The last, the least and the greatest value of a metric.

    The last may be no finite number; then only those before it are compared, if there are any.
    """

    last: float | NotFinite
    min: float | None = None
    max: float | None = None


class SweepPoint(Record):
    """One job of a sweep; `seconds` is how long its program ran in all attempts.

    A job that made many tasks is a point for each `task`, from 0.
    `last_seconds` is that of the last attempt alone; the other amounts are of all. The energy is
    None if that of an attempt is not known.
    `detail` is why it was cancelled, if a reason was given: a search's pruner gives one.
    """

    job_id: int
    name: str
    state: ShownState
    reason: Open[Reason] | None = None
    detail: str | None = None
    parameters: dict[str, Any]
    metrics: dict[str, Measured] = Field(default_factory=dict)
    result: dict[str, Any] | None = None
    seconds: float | None = None
    last_seconds: float | None = None
    gpu_seconds: float | None = None
    energy_j: float | None = None
    cost: float | None = None
    task: int | None = None

    def value(self, column: str) -> Any:  # noqa: ANN401 - whatever the job reported
        """Return the value in a column as a run does; a plain name is a key of its result first."""
        return _value(self, column, SPENT, ("result", "metrics"))


class Run(Record):
    """A job with its parameters, metrics, result and costs.

    `seconds` is how long its program ran in all attempts, `revision` the git commit of its code,
    which was `dirty` if more was changed. `curve` is the outline of the metric that was wanted. A
    job that made many tasks is a run for each `task`, from 0.
    """

    job_id: int
    name: str
    owner: str
    experiment: str | None = None
    sweep: str | None = None
    state: ShownState
    reason: Open[Reason] | None = None
    attempt: int = 0
    parameters: dict[str, Any] = Field(default_factory=dict)
    metrics: dict[str, Measured] = Field(default_factory=dict)
    result: dict[str, Any] | None = None
    seconds: float = 0
    gpu_seconds: float | None = None
    cost: float | None = None
    revision: str | None = None
    dirty: bool = False
    submitted_at: datetime
    finished_at: datetime | None = None
    curve: list[float] | None = None
    task: int | None = None
    tags: list[str] = Field(default_factory=list)

    def value(self, column: str) -> Any:  # noqa: ANN401 - whatever the job reported
        """Return the value in a column, None if it has none.

        A column is a field, or the name of a parameter, a metric or a key of the result, which
        `parameters.`, `metrics.` or `result.` before it tells apart. Of a metric, that is the last
        value; `loss.min`, `loss.max` and `loss.best` are others.
        """
        return _value(self, column, FIELDS, TABLES)


class Runs(Record):
    """Some of the runs that were `found`: the newest of them, or the first by a column.

    Found are the newest that match, as many as are listed or, to be sorted, up to `MOST_RUNS`. If
    there are `more`, older ones match too.
    """

    items: list[Run]
    found: int
    more: bool
    next: str | None = Field(default=None, repr=False, description=NEXT)


class RunGroup(Record):
    """The runs of an experiment, a sweep or an owner: how many, in which states, and their sums.

    Its newest run was submitted at `submitted_at`.
    """

    name: str
    runs: int
    states: ShownCounts
    seconds: float = 0
    cost: float | None = None
    first_submitted_at: datetime
    submitted_at: datetime


class RunGroups(Record):
    """Groups of the runs that were `found`, the newest `MOST_RUNS` that match, or fewer."""

    items: list[RunGroup]
    found: int
    more: bool


class Experiment(Record):
    """An experiment of an owner, and its newest job."""

    owner: str
    experiment: str
    job_id: int
    submitted_at: datetime


def _value(row: Run | SweepPoint, column: str, fields: Sequence[str], tables: Sequence[str]) -> Any:  # noqa: ANN401 - as above
    if column in fields:
        return getattr(row, column)
    table, _, key = column.partition(".")
    own = [(table, key)] if table in TABLES and key else []
    values = (
        _in_table(row, *place)
        for place in [*own, *((name_of_table, column) for name_of_table in tables)]
    )
    return next((value for value in values if value is not None), None)


def _in_table(row: Run | SweepPoint, table: str, key: str) -> Any:  # noqa: ANN401 - as above
    if table == "metrics":
        return _measured(row.metrics, key)
    return value_at(row.parameters if table == "parameters" else row.result, key)


def _measured(metrics: Mapping[str, Measured], key: str) -> float | NotFinite | None:
    if measured := metrics.get(key):
        return measured.last
    name, _, kind = key.rpartition(".")
    if name not in metrics or kind not in KINDS:
        return None
    if kind == "best":
        kind = "min" if lower_is_better(name) else "max"
    value: float | NotFinite | None = getattr(metrics[name], kind)
    return value


def value_at(values: object, path: str, default: object = None) -> Any:  # noqa: ANN401 - any JSON value
    """Return what `a.b` names in an object: its own key of that name, else `b` in its `a`."""
    keys = [path] if isinstance(values, Mapping) and path in values else path.split(".")
    for key in keys:
        if not isinstance(values, Mapping) or key not in values:
            return default
        values = values[key]
    return values


def number_of(value: object) -> float | None:
    """Return a JSON value as a number; None if it is none, or not finite."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and isfinite(value) else None  # type: ignore[arg-type]


def as_numbers(column: list[Any]) -> list[Any]:
    """Return a column of numbers with NaN and infinities as numbers; any other as it is."""
    kinds = {type(value) for value in column if value is not None and value not in NOT_FINITE}
    if not kinds <= {int, float}:
        return column
    return [float(value) if value in NOT_FINITE else value for value in column]


def lower_is_better(key: str) -> bool:
    """Tell whether the least value of a metric is its best: that of a loss, an error or a time."""
    words = _words(key)
    lower = bool(words & (LOSSES | TIMES)) and not words & SCORES
    return lower or LOWER.search(key.lower()) is not None


def _words(key: str) -> set[str]:
    return {word.lower() for word in WORDS.findall(key)}


def in_order(runs: Iterable[Run], column: str, *, descending: bool = False) -> list[Run]:
    """Return runs in the order of a column; those without a value, or with NaN, come last."""
    rows = [(run.value(column), run) for run in runs]
    last = (None, *NOT_FINITE)
    known = [row for row in rows if row[0] not in last]
    known.sort(key=lambda row: _rank(row[0]), reverse=descending)
    return [run for _, run in known] + [run for value, run in rows if value in last]


def _rank(value: object) -> tuple[int, Any]:
    if isinstance(value, bool | int | float):
        return 0, value
    return (1, value) if isinstance(value, datetime) else (2, str(value))


def columns_of(runs: Iterable[Run | SweepPoint], table: str) -> list[str]:
    """Return the keys that any run has in its parameters, metrics or result.

    A key of results with what no cell holds, such as an object that a function returned, is none.
    """
    items = [item for run in runs for item in (getattr(run, table) or {}).items()]
    long = {key for key, value in items if table == "result" and len(str(value)) > LONG}
    left_out = {*long, *([PICKLED] if table == "result" else [])}
    return [key for key in dict.fromkeys(key for key, _ in items) if key not in left_out]


def measured(runs: Sequence[Run | SweepPoint]) -> list[str]:
    """Return the metrics of runs that are no parameters, those that say most first.

    These are what at least half as many runs have as the most common one: losses and scores, then
    others; of these what more runs have, then shorter names.
    """
    others = {*columns_of(runs, "parameters"), *PROGRESS, ""}
    counts = Counter(key for run in runs for key in run.metrics if key not in others)
    half = max(counts.values(), default=0) / 2
    return sorted(
        counts, key=lambda key: (counts[key] < half, _says_little(key), -counts[key], len(key), key)
    )


def most_telling(metrics: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return the first of some metrics, losses and scores before others, none without a name."""
    first = sorted(filter(str.strip, metrics), key=lambda key: (_says_little(key), len(key), key))
    return {key: metrics[key] for key in first[:most]}


def _says_little(metric: str) -> bool:
    return not _words(metric) & (LOSSES | SCORES)


def drawn_metric(runs: list[Run], wanted: Iterable[str]) -> str | None:
    """Return the metric of the first wanted column that any run has, rather one of no parameter."""
    plain, every = measured(runs), columns_of(runs, "metrics")
    names = [name for column in wanted for name in metric_names(column)]
    names = [name if name != ANY_METRIC else plain[0] for name in names if plain or name in every]
    return next((name for known in (plain, every) for name in names if name in known), None)


def metric_names(column: str) -> Iterator[str]:
    """Yield the names that the metric of a column may have: of `metrics.loss.min`, `loss`."""
    for name in dict.fromkeys((column, column.removeprefix("metrics."))):
        yield name
        series, _, kind = name.rpartition(".")
        if series and kind in KINDS:
            yield series


def require_metric(runs: list[Run], name: str) -> None:
    """Refuse a metric to draw that none of the runs has; of no runs, any may be one.

    Raises:
        ColumnUnknown: none of them has it.
    """
    if runs and drawn_metric(runs, (name,)) is None:
        known = columns_of(runs, "metrics")
        hint = _similar(name, known, known) if known else "they have no metrics"
        raise ColumnUnknown(f"none of these runs has a metric {name!r}", hint=hint)


def require_columns(runs: list[Run], names: Iterable[str]) -> None:
    """Refuse columns that none of the runs has; of no runs, any may be one.

    Raises:
        ColumnUnknown: one is neither a field nor a parameter, metric or key of the result.
    """
    missing = missing_columns(runs, names) if runs else []
    if missing:
        raise column_unknown(missing[0], keys_of(runs))


def keys_of(runs: list[Run]) -> list[str]:
    """Return the parameters, metrics and keys of results that any run has."""
    return [key for table in TABLES for key in columns_of(runs, table)]


def missing_columns(runs: list[Run], names: Iterable[str]) -> list[str]:
    """Return those columns that are no fields, and that none of the runs has."""
    keys = keys_of(runs)
    # A value may be null, and of a metric that was never a number, there is no best.
    known = {*FIELDS, *keys, *(f"{key}.{kind}" for key in keys for kind in KINDS)}
    return [
        name
        for name in names
        if _without_table(name) not in known and all(run.value(name) is None for run in runs)
    ]


def _without_table(column: str) -> str:
    table, _, key = column.partition(".")
    return key if table in TABLES else column


def column_unknown(name: str, keys: Iterable[str]) -> ColumnUnknown:
    """Return the refusal of a column, with the most similar of the keys that there are, or all."""
    known = list(dict.fromkeys(keys))
    hint = _similar(name, [*known, *FIELDS], known or FIELDS)
    return ColumnUnknown(f"none of these runs has a column {name!r}", hint=hint)


def _similar(name: str, among: Sequence[str], shown: Sequence[str]) -> str:
    close = get_close_matches(name, among, 1)
    return f"did you mean {close[0]}?" if close else f"there are {names_text(shown, NAMED)}"


def differing(runs: list[Run]) -> list[str]:
    """Return the parameters in which runs differ, what most have first; of a single run, all."""
    counts = Counter(key for run in runs for key in run.parameters)
    keys = sorted(columns_of(runs, "parameters"), key=lambda key: -counts[key])
    several = len(runs) > 1
    return [
        key
        for key in keys
        if not several or len({str(run.parameters.get(key)) for run in runs}) > 1
    ]


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with a column for each key of an object in it, and in that: `parameters.lr`."""
    columns: dict[str, Any] = {}
    for name, value in row.items():
        inner = flat(value) if isinstance(value, Mapping) else None
        columns |= {name: value} if inner is None else {f"{name}.{k}": v for k, v in inner.items()}
    return columns
