"""What a search was asked for; it is kept with the study, so that another process can go on."""

from collections.abc import Mapping, Sequence
from math import isfinite, prod
from typing import Any, Self

from forge_schema.model.quantities import counted
from forge_schema.model.results import TRIAL, number_of
from forge_schema.model.spec import SHOWN
from pydantic import BaseModel, ConfigDict

from forge_client.errors import ClientError
from forge_client.project.matrix import (
    NAME_LENGTH,
    Matrix,
    Scalar,
    check_placeholders,
    digest,
    filled,
    text_of,
)

# What a search may be resumed with, and what a repeated `run` must have as it was.
LIMITS = {
    "trials": "--trials",
    "parallel": "--parallel",
    "gpu_hours": "--budget-gpu-hours",
    "cost": "--budget-cost",
}
OPTIONS = {
    **{name: f"--{name}" for name in ("metric", "maximize", "sampler", "pruner", "seed")},
    "spec": "the job or its files",
    "choices": "--matrix",
    "ranges": "--range",
    **LIMITS,
}
FORM = "write NAME=LOW..HIGH, and ,log or ,step=NUMBER behind it if wanted: lr=1e-4..1e-1,log"


class Range(BaseModel):
    """Numbers from `low` to `high`, both included; whole ones if both are written so."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    low: int | float
    high: int | float
    log: bool = False
    step: int | float | None = None

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the range of a text such as `1e-4..1e-1,log`.

        Raises:
            ValueError: it is none.
        """
        ends, *more = text.split(",")
        low, dots, high = (setting(part) for part in ends.partition(".."))
        options = {
            name: True if name == "log" and not sign else setting(value)
            for name, sign, value in (text.partition("=") for text in more)
        }
        if dots != "..":
            raise ValueError("it is not LOW..HIGH")
        if odd := sorted(set(options) - {"log", "step"}):
            raise ValueError(f"a range has no {odd[0]!r}, only log and step")
        if number_of(low) is None or number_of(high) is None or not low < high:  # type: ignore[operator]
            raise ValueError("LOW must be a number below HIGH")
        span = cls(low=low, high=high, **options)  # type: ignore[arg-type]
        if span.log and (span.low <= 0 or span.step is not None):
            raise ValueError("with log, LOW must be above 0, and there is no step")
        if span.step is not None and span.step <= 0:
            raise ValueError("the step must be above 0")
        return span

    @property
    def whole(self) -> bool:
        """Whether it has only whole numbers."""
        return all(isinstance(bound, int) for bound in (self.low, self.high, self.step or 1))

    @property
    def note(self) -> str | None:
        """What to say of whole numbers: whoever wrote `dropout=0..1` did not mean them."""
        if not self.whole or self.step:
            return None
        return (
            f"whole numbers {self.low} to {self.high};"
            f" write {self.low}.0..{self.high}.0 for all between"
        )


class Plan(BaseModel):
    """A search: `spec` is a job without its point, its command with `{name}` for each value.

    `metric` is a key of a job's result or of its metrics. Without `trials`, a budget ends it.
    `cap` is what `parallel` was when it was begun, if that has changed: jobs stay as they were.
    """

    model_config = ConfigDict(frozen=True)

    sweep: str
    owner: str
    spec: dict[str, Any]
    choices: dict[str, list[Scalar]] = {}
    ranges: dict[str, Range] = {}
    metric: str
    maximize: bool = False
    sampler: str = "tpe"
    pruner: str | None = None
    seed: int | None = None
    trials: int | None = None
    parallel: int = 1
    gpu_hours: float | None = None
    cost: float | None = None
    cap: int | None = None

    def checked(self) -> Self:
        """Return it with the number of its trials.

        Raises:
            ClientError: it does not describe a search.
        """
        names = {*self.choices, *self.ranges}
        if not names:
            raise _wrong("there is nothing to search", f"name a parameter: --range; {FORM}")
        if twice := sorted({*self.choices} & {*self.ranges}):
            raise _wrong(f"{twice[0]} is in --matrix and in --range", "keep one of them")
        check_placeholders(self.spec["command"], {*names, TRIAL})
        if self.gpu_hours is not None and not self.spec["resources"].get("gpus"):
            raise _wrong("jobs without a GPU use no GPU-hours", "limit --trials or --budget-cost")
        if self.is_grid:
            return self._as_grid()
        if self.trials is None and self.gpu_hours is None and self.cost is None:
            raise _wrong("nothing would end this search", "give --trials, or a --budget-…")
        return self

    @property
    def is_grid(self) -> bool:
        """Whether each combination of the choices has one trial."""
        return self.sampler.partition(",")[0] == "grid"

    def _as_grid(self) -> Self:
        if self.ranges:
            raise _wrong("a grid has no ranges", "list the values: --matrix lr=0.1,0.01")
        return self.model_copy(update={"trials": min(self._size, self.trials or self._size)})

    @property
    def _size(self) -> int:
        return prod(map(len, self.choices.values()))

    def extended(self, limits: Mapping[str, float]) -> Self:
        """Return it with other `LIMITS`.

        Raises:
            ClientError: it would have more trials than its grid has points, or no end.
        """
        if self.is_grid and limits.get("trials", 0) > self._size:
            raise _wrong(
                f"this grid has {counted(self._size, 'point')}, and a trial for each",
                "begin another search with more values: `forge sweep run`",
            )
        cap = self.cap or self.parallel if "parallel" in limits else self.cap
        return self.model_copy(update={**limits, "cap": cap}).checked()

    def differing(self, other: "Plan") -> list[str]:
        """Return the options in which another plan of the same name differs."""
        mine, theirs = (plan.model_dump(mode="json") for plan in (self, other))
        for each in (mine, theirs):
            each["spec"] = {name: each["spec"][name] for name in each["spec"].keys() - SHOWN}
        return [option for name, option in OPTIONS.items() if mine[name] != theirs[name]]

    def job(self, number: int, point: Mapping[str, Scalar]) -> dict[str, Any]:
        """Return the job of a trial; the same trial always has the same one."""
        parameters = {TRIAL: number, **point}
        texts = {name: text_of(value) for name, value in parameters.items()}
        return {
            **self.spec,
            "command": filled(self.spec["command"], texts),
            "kind": "benchmark",
            "sweep": self.sweep,
            "parallel": self.cap or self.parallel,
            "parameters": parameters,
            "name": _numbered(self.spec["name"], number),
            "idempotency_key": f"{self.sweep}:{digest(parameters)}",
        }


def _numbered(name: str, number: int) -> str:
    """Return the name of a trial's job; its parameters are columns of their own."""
    suffix = f" {TRIAL}={number}"
    return name[: NAME_LENGTH - len(suffix)] + suffix


def setting(word: str) -> Scalar:
    """Return a bound of a range or an argument of a sampler, read by Python: `.5` is a number."""
    if word in {"true", "false"}:
        return word == "true"
    for kind in (int, float):
        try:
            number = kind(word)
        except ValueError:
            continue
        if isfinite(number):
            return number
    return word


def ranges(texts: Sequence[str]) -> dict[str, Range]:
    """Return what `--range NAME=LOW..HIGH` options describe.

    Raises:
        ClientError: an option is malformed, or repeats a parameter.
    """
    spans: dict[str, Range] = {}
    for text in texts:
        name, _, span = text.partition("=")
        if not name.isidentifier() or name == TRIAL:
            raise _wrong(f"--range {text!r}: {name!r} cannot be a parameter", FORM)
        if name in spans:
            raise _wrong(f"--range names {name} twice", "keep one of them")
        try:
            spans[name] = Range.read(span)
        except ValueError as error:
            # Of pydantic's errors, the first line says little: its form says more.
            fault = str(error).splitlines()[0]
            raise _wrong(f"--range {text!r}: {fault}", FORM) from error
    return spans


def choices(matrix: Matrix) -> dict[str, list[Scalar]]:
    """Return the values of a matrix.

    Raises:
        ClientError: a parameter has a reserved name.
    """
    if TRIAL in matrix:
        raise _wrong(f"{TRIAL!r} cannot be a parameter", "it is the number of the trial")
    return {name: [value.value for value in values] for name, values in matrix.items()}


def _wrong(message: str, hint: str) -> ClientError:
    return ClientError(message, hint=hint, code="matrix_invalid")
