"""Turn folders and fields into jobs as the queue takes them, and upload what they need."""

import inspect
import re
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import isfinite
from numbers import Integral, Rational, Real
from typing import TYPE_CHECKING, Any, ParamSpec, overload

from forge_client.backend import Backend
from forge_client.errors import InvalidInput
from forge_client.project import submit
from forge_client.project.forge_toml import Project
from forge_client.project.matrix import NAME, Scalar
from forge_client.project.request import Request
from forge_client.project.submit import DryRun, Parcel
from forge_client.settings import Settings

if TYPE_CHECKING:
    from forge_schema.model.job import Schedule

    from forge_client.sdk.job import Job
    from forge_client.sdk.sweeps import Sweep

P = ParamSpec("P")
OURS = "forge_client"
INCLUDE = re.compile(r"--include '?([^'\s]+)'?")
MOST = 50
# Longer ones are data, not what runs are compared by.
MOST_CHARACTERS = 100
MOST_INTEGER = 2**63
Place = tuple[str, int, dict[str, Any]]
# Of a call that is made in a thread, whose frames are not those of the caller.
called_at: ContextVar[Place | None] = ContextVar("called_at", default=None)


@dataclass(frozen=True)
class Sender:
    """Sends jobs to a backend, as the owner that the settings name."""

    backend: Backend
    settings: Settings

    def submit(self, parcel: Parcel | None, requests: Sequence[Request]) -> list[int]:
        """Submit jobs on the same files, all of them or none, and return their ids."""
        return self.backend.submit(self.uploaded(parcel, requests)) if requests else []

    def uploaded(self, parcel: Parcel | None, requests: Sequence[Request]) -> list[dict[str, Any]]:
        """Have the queue check jobs, upload their files, and return them as it takes them."""
        ready = submit.prepared(requests, parcel, owner=self.settings.job_owner)
        if _is_dry.get():
            raise _DryEnd(submit.planned(self.backend, ready))
        return submit.uploaded(self.backend, ready)


# What submits, of the SDK's classes.
SUBMITTING = {
    *("submit", "submit_many", "map", "benchmark", "test", "run_handler", "rerun"),
    *("schedule", "run_schedule"),
}
# What is submitted for no values.
NOTHING = DryRun(())
_is_dry: ContextVar[bool] = ContextVar("is_dry", default=False)


class _DryEnd(Exception):
    """Ends a call that would store something next."""

    def __init__(self, plan: DryRun) -> None:
        super().__init__()
        self.plan = plan


@overload
def dry_run(
    verb: Callable[P, Coroutine[Any, Any, object]], *args: P.args, **kwargs: P.kwargs
) -> Coroutine[Any, Any, DryRun]: ...
@overload
def dry_run(
    verb: "Callable[P, Job | Sequence[Job] | Sweep | Schedule]", *args: P.args, **kwargs: P.kwargs
) -> DryRun: ...
def dry_run(
    verb: Callable[P, object], *args: P.args, **kwargs: P.kwargs
) -> DryRun | Coroutine[Any, Any, DryRun]:
    """Return what a call would submit, checked by the queue; nothing is stored.

    Args:
        verb: what submits, such as `client.submit`, `job.rerun`, or `map` of a function.
        *args: its arguments.
        **kwargs: its arguments by name.

    Raises:
        ClientError: it does not submit, or as it does.
    """
    kind = type(getattr(verb, "__self__", None)).__module__.partition(".")[0]
    if kind != OURS or getattr(verb, "__name__", "") not in SUBMITTING:
        raise InvalidInput(
            f"{verb!r} is nothing that submits",
            hint='give it and its arguments: dry_run(client.submit, ".", "python train.py")',
        )
    token = _is_dry.set(True)
    try:
        made = verb(*args, **kwargs)
        return _awaited(made) if inspect.iscoroutine(made) else NOTHING
    except _DryEnd as end:
        return end.plan
    finally:
        _is_dry.reset(token)


async def _awaited(made: Coroutine[Any, Any, object]) -> DryRun:
    token = _is_dry.set(True)
    try:
        await made
    except _DryEnd as end:
        return end.plan
    finally:
        _is_dry.reset(token)
    return NOTHING


def end_dry_run(plan: Callable[[], DryRun]) -> None:
    """End a dry run of a job whose files are stored already, and do nothing in others."""
    if _is_dry.get():
        raise _DryEnd(plan())


def place_of_call() -> Place:
    """Return the file and line outside this package that has the call, and its module's names."""
    frame = inspect.currentframe()
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] == OURS:
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno, frame.f_globals) if frame else ("", 0, {})


def warn(warning: str) -> None:
    """Warn at the line outside this package that has the call, in the words of the SDK."""
    file, line, module = called_at.get() or place_of_call()
    warning = INCLUDE.sub(lambda option: f"include={[option[1]]}", warning)
    warnings.warn_explicit(
        warning.replace("use --secret", "use secrets=[…]"),
        UserWarning,
        file,
        line,
        module.get("__name__"),
        module.setdefault("__warningregistry__", {}),
    )


# Silent, but for what is missing.
packed = partial(submit.packed, narrator=submit.Narrator(missing=warn))


def requests(
    project: Project, jobs: Iterable[Mapping[str, Any]], *, config: str | None = None
) -> list[Request]:
    """Return jobs with the project's forge.toml, unless a config replaces it, below their fields.

    Raises:
        ClientError: a field is unknown or invalid.
    """
    base = Request() if config else project.request()
    return [base.changed(_fields(job)) for job in ([jobs] if isinstance(jobs, Mapping) else jobs)]


def _fields(job: Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(job, Mapping):
        return job
    raise InvalidInput(
        f"{job!r} is not the fields of a job",
        hint='give a dictionary for each job, such as {"command": "python train.py"}',
    )


def compared_by(
    given: Iterable[tuple[str, object]], *, own: Mapping[str, Scalar]
) -> dict[str, Scalar]:
    """Return the job's own parameters and what it was given: numbers, short texts and booleans."""
    scalars = ((name, scalar) for name, value in given if (scalar := _scalar(value)) is not None)
    named = (pair for pair in scalars if pair[0] not in own and NAME.fullmatch(str(pair[0])))
    return {**own, **dict(islice(named, max(MOST - len(own), 0)))}


def _scalar(value: object) -> Scalar | None:
    """Return a value, also a number of numpy's, as JSON has it; None if it is no short scalar."""
    match value:
        case bool():
            return value
        case str():
            fits = len(value) <= MOST_CHARACTERS and value.isprintable()
            return str.__str__(value) if fits else None
        case Integral():
            number = int(value)
            return number if abs(number) < MOST_INTEGER else None
        case Real() if not isinstance(value, Rational) and isfinite(value):
            return float(value)
    return None
