"""A benchmark's matrix: every combination of its parameters becomes a job."""

import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import isfinite, prod
from typing import Any

from forge_schema.model.quantities import counted
from forge_schema.model.results import REPEAT

from forge_client.errors import ClientError
from forge_client.project import no_command
from forge_client.project.request import Request

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")
# A number as JSON has it. `01`, `+5`, `1_000` and `.5` are none: they keep their zeros and signs.
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
# JSON would take these for numbers too, and lose what they say: a version such as `3.10`, and the
# beginning of a commit's name, such as `12e45` or `1234e5`.
NAMES = re.compile(r"[1-9][0-9]*\.[0-9]+0|[1-9][0-9]+e[0-9]{2,}|[0-9]{4,}e[0-9]+")
# What a search takes: from one number to another.
SPAN = re.compile(rf"{NUMBER.pattern}\.\.{NUMBER.pattern}")
MOST = 10_000
NAME_LENGTH = 200
SWEEP_LENGTH = 150
Scalar = bool | int | float | str


@dataclass(frozen=True)
class Value:
    """One value of a parameter, and its original notation."""

    value: Scalar
    text: str


Matrix = Mapping[str, Sequence[Value]]


def from_options(texts: Sequence[str]) -> dict[str, list[Value]]:
    """Return the matrix that `--matrix NAME=VALUE,VALUE` options describe.

    Raises:
        ClientError: an option is malformed, or repeats a parameter.
    """
    parameters: dict[str, list[Value]] = {}
    for text in texts:
        name, sign, values = text.partition("=")
        if not sign or not values:
            raise _wrong(
                f"--matrix {text!r} is not a parameter", "write it as --matrix batch=16,32"
            )
        if name in parameters:
            raise _wrong(f"--matrix names {name} twice", "write all its values in one: a=1,2,3")
        if SPAN.fullmatch(values):
            raise _wrong(
                f"--matrix {text!r} is a range, and a matrix has each of its values",
                f"write --matrix {name}=1,2,3; `forge sweep run --range {name}=1..3` searches one",
            )
        parameters[name] = [Value(scalar(word), word) for word in values.split(",")]
    return _checked(parameters)


def from_toml(table: Mapping[str, Iterable[Any]]) -> dict[str, list[Value]]:
    """Return the matrix in forge.toml's `[matrix]`, or one given in Python.

    Raises:
        ClientError: a value is not a number, boolean or string, or there is no list of them.
    """
    if not isinstance(table, Mapping):
        raise _wrong(f"{table!r} is not a matrix", 'write it as {"lr": [0.1, 0.01]}')
    return _checked({name: [_plain(name, value) for value in _listed(name, values)]
                     for name, values in table.items()})  # fmt: skip


def _listed(name: str, values: Iterable[Any]) -> list[Any]:
    # A text would become a job for each of its letters.
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise _wrong(f"{name} has {values!r} instead of a list", f"write [{values!r}]")
    return list(values)


def _plain(name: str, value: Any) -> Value:  # noqa: ANN401 - whatever the list has
    # NumPy's scalars become Python's.
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, bool | int | float | str):
        raise _wrong(f"{name} has {value!r}", "a value must be a number, a string or a boolean")
    if isinstance(value, float) and not isfinite(value):
        raise _wrong(f"{name} has {value}, which JSON cannot carry", f'write it as text: "{value}"')
    return Value(value, text_of(value))


def expanded(
    base: Request, matrix: Matrix, *, repeat: int, sweep: str, key: str | None
) -> list[Request]:
    """Return a request for each point, with the placeholders of the command replaced.

    Args:
        base: the common request; its command has `{name}` for a parameter's value, and `{{` for a
            brace.
        matrix: the parameters.
        repeat: how many jobs for each point.
        sweep: the name of the sweep.
        key: the base of each job's idempotency key, if any.

    Raises:
        ClientError: there is no command, nothing to vary, an unknown placeholder, or too many jobs.
    """
    if not base.command:
        raise no_command()
    if not matrix and repeat == 1:
        raise _wrong(
            "there is nothing to vary", "give the values of a parameter: --matrix lr=0.1,0.01"
        )
    check_placeholders(base.command, {*matrix, REPEAT})
    if (count := prod(map(len, matrix.values())) * repeat) > MOST:
        raise _wrong(
            f"this would be {counted(count, 'job')}", f"at most {MOST} can be submitted at once"
        )
    return [_point(base, chosen, sweep, key) for chosen in _points(matrix, repeat)]


def left_out(matrix: Mapping[str, Iterable[Any]]) -> str:
    """Return a sentence about a matrix of forge.toml, for what submits a single job."""
    if not matrix:
        return ""
    points = prod(len([*values]) for values in matrix.values())
    return (
        f"forge.toml has a [matrix] of {counted(points, 'point')}, and this is one job without it:"
        " `forge benchmark` submits one for each"
    )


def sweep_name(stem: str, key: str | None) -> str:
    """Return a new name of a sweep; submitting again with the same key gives the same one."""
    mark = hashlib.sha256(key.encode()).hexdigest()[:8] if key else secrets.token_hex(4)
    return f"{stem[:SWEEP_LENGTH].replace('/', '-')}-{mark}"


def _points(matrix: Matrix, repeat: int) -> Iterator[dict[str, Value]]:
    for values in product(*matrix.values()):
        chosen = dict(zip(matrix, values, strict=True))
        for turn in range(1, repeat + 1):
            yield {**chosen, REPEAT: Value(turn, str(turn))} if repeat > 1 else chosen


def _point(base: Request, chosen: Mapping[str, Value], sweep: str, key: str | None) -> Request:
    texts = {REPEAT: "1", **{name: value.text for name, value in chosen.items()}}
    parameters = {name: value.value for name, value in chosen.items()}
    command = filled(base.command or [], texts)
    point = " ".join(f"{name}={value.text}" for name, value in chosen.items())
    return base.changed({
        "command": command,
        "kind": "benchmark",
        "sweep": sweep,
        "parameters": parameters,
        "name": f"{base.name} {point}".strip()[:NAME_LENGTH],
        "idempotency_key": key and f"{key}:{digest(parameters)}",
    })  # fmt: skip


def filled(command: Sequence[str], texts: Mapping[str, str]) -> list[str]:
    """Return a command with each placeholder replaced by the value's text."""
    # One pass, so that a value that looks like a placeholder is not replaced.
    return [PLACEHOLDER.sub(lambda m: texts[m[1]] if m[1] else m[0][0], word) for word in command]


def check_placeholders(command: Sequence[str], known: set[str]) -> None:
    """Check that a command names only known parameters.

    Raises:
        ClientError: a placeholder is unknown.
    """
    asked = {m[1] for word in command for m in PLACEHOLDER.finditer(word) if m[1]}
    if unknown := sorted(asked - known):
        raise _wrong(
            f"the command has {{{unknown[0]}}}, which is no parameter",
            f"known are {', '.join(sorted(known))}; write {{{{{unknown[0]}}}}} for literal braces",
        )


def _checked(matrix: dict[str, list[Value]]) -> dict[str, list[Value]]:
    for name, values in matrix.items():
        if not NAME.fullmatch(name) or name == REPEAT:
            raise _wrong(
                f"{name!r} cannot be a parameter",
                "use letters, digits and underscores; `repeat` is reserved",
            )
        if not values:
            raise _wrong(f"{name} has no values", "give it at least one")
        texts = [json.dumps(value.value) for value in values]
        if twice := next((text for text in texts if texts.count(text) > 1), None):
            raise _wrong(
                f"{name} has {twice} twice", "use --repeat to run each point several times"
            )
    return matrix


def digest(parameters: Mapping[str, Scalar]) -> str:
    """Return a mark of a point, for the idempotency key of its job."""
    return hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()[:32]


def scalar(word: str) -> Scalar:
    """Return the number or the boolean that a word stands for in JSON, or the word itself.

    So that nothing is lost, `01` and `3.10` are words.
    """
    if word in {"true", "false"}:
        return word == "true"
    if not (number := NUMBER.fullmatch(word)) or NAMES.fullmatch(word):
        return word
    try:
        parsed = float(word) if number[2] or number[3] else int(word)
    except ValueError:  # Python converts at most 4,300 digits.
        return word
    return parsed if isfinite(parsed) else word


def text_of(value: Scalar) -> str:
    """Return a value as a command has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _wrong(message: str, hint: str) -> ClientError:
    return ClientError(message, hint=hint, code="matrix_invalid")
