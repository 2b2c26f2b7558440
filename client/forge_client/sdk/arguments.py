"""The arguments of the SDK's verbs, checked against their annotations before Forge is asked."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import cache, wraps
from inspect import Parameter, Signature, isfunction, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from forge_schema.model.quantities import names_text, seconds
from pydantic import ConfigDict, TypeAdapter, ValidationError

from forge_client.errors import ClientError, InvalidInput
from forge_client.project.request import KNOWN

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
# What is checked, and what to write for it. Lists of text, fields of jobs and models have checks
# of their own, which say more.
KINDS: Mapping[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    Path: "a path",
    timedelta: 'text such as "7d"',
    datetime: "a datetime",
    Sequence[int]: "a list of whole numbers",
    NoneType: "None",
}

# What errors say to those who write forge.toml and options, and what is meant in Python.
IN_PYTHON = {
    "write a table, as in { name = value }": 'write a dictionary, as in {"name": "value"}',
    "write true or false": "write True or False",
    "or false to install": "or False to install",
    "write it after --, as in `forge submit . -- python train.py`, or as `command` in forge.toml": (
        'give one, as in command="python train.py", or write it into forge.toml'
    ),
}
# What a command that an error names is here.
CALLS = {
    "approve": "client.approvals()",
    "benchmark": "client.benchmark()",
    "doctor": "client.health()",
    "input list": "client.inputs()",
    "invite": "client.invite()",
    "key create": "client.create_key()",
    "key list": "client.keys()",
    "notification add": "client.add_notification()",
    "notification deliveries": "client.deliveries()",
    "notification list": "client.notifications()",
    "notification setup": "client.set_notifier()",
    "ps": "client.jobs()",
    "queue list": "client.queues()",
    "schedule list": "client.schedules()",
    "schedule pause": "client.pause_schedule()",
    "submit": "client.submit()",
    "sweep list": "client.sweeps()",
    "team join": "client.change_team()",
    "team list": "client.teams()",
    "team show": "client.team()",
    "template list": "client.templates()",
    "worker add": "client.add_worker()",
    "worker create": "client.create_worker()",
    "worker delete": "client.delete_worker()",
    "worker list": "client.workers()",
}
CALLS_OF_A_JOB = {
    "cancel": "cancel()",
    "change": "change()",
    "checkpoints": "checkpoints()",
    "code": "code()",
    "delete": "delete()",
    "logs": "logs()",
    "rerun": "rerun()",
    "retry": "retry()",
    "show": "status()",
    "tag remove": "annotate()",
}
COMMAND = re.compile(r"`forge ([^`]+)`")
# An option, with a value that shows what one looks like; not of another program's command.
OPTION = re.compile(r"`[^`]*`|(?<![\w-])--([a-z][a-z-]+)(?: (['\d.][^\s,;]*))?")
# Options that are arguments here, beside the fields of a job; some under another name.
ARGUMENTS = {name.replace("_", "-"): name for name in KNOWN} | {
    name.replace("_", "-"): name
    for name in (
        *("database_url", "everyone", "include", "parallel", "role", "server", "store_url"),
        *("team", "tls_ca", "url"),
    )
}
ARGUMENTS |= {"api-key-file": "api_key", "dir": "up_dir", "no-install": "requirements=False"}
# The SDK's own classes, which import this module.
OURS = {"Job": "a job", "Sweep": "a sweep"}

SECONDS = {"preempts_after_s"}
COUNTS = {"count", "repeat", "limit"}


def checked_verbs(kind: type[C]) -> type[C]:
    """Check the arguments of all public methods of a class."""
    for name, method in [*vars(kind).items()]:
        if isfunction(method) and not name.startswith("_"):
            setattr(kind, name, checked(method))
    return kind


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of a function by the kinds that its annotations name.

    Raises:
        ClientError: by the function: an argument is of another kind.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        named, kinds_by_name = _checked_by_name(function)
        try:
            bound = named.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # which says what is missing
        for name in (each for each in kinds_by_name if each in bound.arguments):
            kinds, given = kinds_by_name[name], bound.arguments[name]
            many = named.parameters[name].kind is Parameter.VAR_POSITIONAL
            bound.arguments[name] = (
                tuple(_taken(name, kinds, each) for each in given)
                if many
                else _taken(name, kinds, given)
            )
        with in_python():
            return function(*bound.args, **bound.kwargs)

    return call


@contextmanager
def in_python() -> Iterator[None]:
    """Have an error about what was given speak of Python rather than of options and TOML."""
    try:
        yield
    except ClientError as error:
        error.message, error.hint = in_calls(error.message), in_calls(error.hint, options=True)
        error.args = (error.message,)
        raise


def in_calls(text: str, *, options: bool = False) -> str:
    """Say in Python what a text says in commands, and in options if they are the reader's own."""
    for theirs, ours in IN_PYTHON.items():
        text = text.replace(theirs, ours)
    text = COMMAND.sub(_call, text)
    return OPTION.sub(_argument, text) if options else text


def _call(command: re.Match[str]) -> str:
    words = command[1].split()
    job = next((word for word in words if word.isdecimal()), None)
    for verb in (" ".join(words[:2]), words[0]):
        if verb in CALLS:
            return CALLS[verb]
        if verb in CALLS_OF_A_JOB and "--sweep" not in words:
            return f"{f'client.job({job})' if job else 'job'}.{CALLS_OF_A_JOB[verb]}"
    return command[0]


def _argument(option: re.Match[str]) -> str:
    if option[1] not in ARGUMENTS:
        return option[0]
    name, value = ARGUMENTS[option[1]], option[2]
    if value is None:
        return f"`{name}`"
    return f"{name}={value}" if value[0] != "." else f'{name}="{value}"'


def duration(name: str, given: timedelta | str) -> timedelta:
    """Return a duration, which may be text.

    Raises:
        ClientError: the text is none.
    """
    try:
        return timedelta(seconds=seconds(given)) if isinstance(given, str) else given
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"{name}: {given!r} is not a duration", 'write "90s", "30m" or "7d"'
        ) from None


def waiting_s(timeout: float | str | timedelta | None) -> float | None:
    """Return how long to wait in seconds; None means without limit."""
    return None if timeout is None else seconds(timeout)


def lifetime(lasts: timedelta | str | None) -> timedelta | None:
    """Return how long a key or a token is valid; None means forever.

    Raises:
        ClientError: it is no duration, or is below a second.
    """
    span = None if lasts is None else duration("lasts", lasts)
    if span is not None and span < timedelta(seconds=1):
        raise InvalidInput(f"lasts: {lasts!r} is below a second", 'write "12h" or "30d"')
    return span


@cache
def _checked_by_name(
    function: Callable[..., Any],
) -> tuple[Signature, Mapping[str, tuple[Any, ...]]]:
    """Return a function's parameters, and the kinds of those that are checked."""
    hints, named = get_type_hints(function), signature(function)
    kinds_by_name = {
        name: _kinds(hints[name])
        for name, parameter in named.parameters.items()
        if name in hints and parameter.kind is not Parameter.VAR_KEYWORD
    }
    return named, {name: kinds for name, kinds in kinds_by_name.items() if all(map(_said, kinds))}


def _said(kind: Any) -> str:  # noqa: ANN401 - as below
    """Return what to write for a kind that is checked; nothing for others."""
    return KINDS.get(kind) or OURS.get(getattr(kind, "__name__", ""), "")


def _kinds(annotation: Any) -> tuple[Any, ...]:  # noqa: ANN401 - an annotation may be anything
    is_union = get_origin(annotation) in {Union, UnionType}
    return get_args(annotation) if is_union else (annotation,)


def _taken(name: str, kinds: tuple[Any, ...], given: object) -> object:
    """Return an argument, a number of numpy's as Python's and an iterable as a list."""
    if name in COUNTS and type(given) is int and given < 1:
        raise InvalidInput(f"{name}: {given} is less than 1", "write 1 or more")
    if {float, timedelta} <= {*kinds} and isinstance(given, str):
        return duration(name, given).total_seconds()
    if bool in kinds or not isinstance(given, bool):  # which Python takes for a number
        with suppress(ValidationError):
            return _adapter(kinds).validate_python(given)
    wanted = [_said(kind) for kind in kinds if not (kind is str and timedelta in kinds)]
    hint = f"write {names_text(wanted, len(wanted), last='or')}"
    if name in SECONDS and (count := _seconds(given)) is not None:
        hint = f"it is in seconds: write {count:g}"
    raise InvalidInput(f"{name}: {given!r} is of the wrong kind", hint)


@cache
def _adapter(kinds: tuple[Any, ...]) -> TypeAdapter[Any]:
    plain = [list[int] if kind == Sequence[int] else kind for kind in kinds]
    one_of: Any = Union[tuple(plain)]  # noqa: UP007 - as many as there are
    # As a duration, a bare number would be taken for seconds, of which only some are in numbers.
    strict = ConfigDict(
        strict=timedelta in kinds and float not in kinds, arbitrary_types_allowed=True
    )
    return TypeAdapter(one_of, config=strict)


def _seconds(given: object) -> float | None:
    try:
        return seconds(given)
    except ValueError:
        return None


def require_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Check that a value is one of several.

    Raises:
        ClientError: it is none of them.
    """
    if value not in choices:
        meant = f"write {names_text([*choices], len(choices), last='or')}"
        raise InvalidInput(f"{name}: {value!r} is not known", meant)
