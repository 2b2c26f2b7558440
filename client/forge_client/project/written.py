"""Values of a job as people write them, read without pydantic: in forge.toml, options, the SDK."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from forge_schema.model.quantities import size
from forge_schema.model.reading import NeedsShell, check_first, without_signs, words_of

from forge_client.errors import InvalidInput

OWN_NAME = re.compile(r"[0-9]+\.[0-9]+")
NAME = re.compile(r"(?P<job_id>[0-9]+)(:(?P<attempt>[0-9]+)\.(?P<number>[0-9]+))?")

# The largest numbers that the queue can store.
MOST = {"job_id": 2**63 - 1, "attempt": 32_767, "number": 2_000_000_000}
RANGE = re.compile(r"\s*([0-9]{1,9})\s*(?:\.\.\s*([0-9]{1,9})\s*)?")
# What a shell, and what it starts, can have.
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def command_words(command: object) -> object:
    """Return the words of a command; a text is split as in a shell."""
    if isinstance(command, str):
        return words_of(command)  # a sign in quotes is meant as it is
    if isinstance(command, (list, tuple)) and all(isinstance(word, str) for word in command):
        # Each word of a list is an argument as it is, whatever a shell would make of it.
        check_first(command, shlex.join(command))
    return command


def machines(value: object) -> object:
    """Return a number of machines, or a range such as `2..8`, as the least and the most of them."""
    if value is None or isinstance(value, tuple):
        return value
    match = None if isinstance(value, bool) else RANGE.fullmatch(str(value))
    if match is None:
        raise ValueError("write a number of machines, or a range of them such as 2..8")
    least, most = int(match[1]), match[2] and int(match[2])
    # The queue says so too, but of no line of forge.toml.
    if most and most < least:
        raise ValueError(
            f"a range of machines cannot go from {least} to {most}: the least comes first"
        )
    return least, most


def checkpoint_folder(value: object) -> object:
    """Return a folder's path as the queue writes it: a shell completes `runs` to `runs/`."""
    if not isinstance(value, str):
        return value
    if not PurePosixPath(value).parts:
        raise ValueError(
            "the project's folder itself cannot be the checkpoint folder; name the files that the"
            " job writes there by patterns, such as --checkpoint '*.pt'"
        )
    return value.removeprefix("./").rstrip("/") or value


def patterns(value: object) -> object:
    """Return patterns as the queue writes them; a single one may be given alone."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, Iterable):
        return value
    return [
        pattern.removeprefix("./").rstrip("/") if isinstance(pattern, str) else pattern
        for pattern in value
    ]


def names(value: object) -> object:
    """Return names of extras or groups; a single one may be given alone, or several as `a,b`."""
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, Iterable):
        return value
    return [name.strip() for each in words for name in str(each).split(",") if name.strip()]


def file_or_not(value: object) -> object:
    """Return a path in the project, or False, which is nothing to install."""
    if value is None or value is False or (isinstance(value, str) and value):
        return value
    raise ValueError("it must be a path in the project, or false to install nothing")


READERS: Mapping[str, Callable[[Any], object]] = {
    "command": command_words,
    "nodes": machines,
    "checkpoint_dir": checkpoint_folder,
    "checkpoint": patterns,
    "requirements": file_or_not,
    "extras": names,
    "groups": names,
    "limit": size,
}
"""How the values of the keys are read that have a form of their own; they raise `ValueError`."""


def checkpoint(name: object) -> dict[str, int]:
    """Return a checkpoint's name in the queue's form.

    Raises:
        ValueError: it is not the name of a checkpoint.
    """
    match = NAME.fullmatch(str(name).strip())
    if match is None:
        raise ValueError(
            "write a job's id for its newest checkpoint, or JOB:ATTEMPT.NUMBER as"
            " `forge checkpoints JOB` shows them"
        )
    asked = {part: int(digits) for part, digits in match.groupdict().items() if digits is not None}
    if any(number > MOST[part] for part, number in asked.items()):
        raise ValueError(f"there is no checkpoint {name}; `forge checkpoints JOB` lists a job's")
    return asked


def own_checkpoint(job_id: int, name: str) -> tuple[int, int]:
    """Return the attempt and the number of a checkpoint of this job: `1.31`, or `12:1.31`.

    Raises:
        ClientError: it is not the name of a checkpoint, or that of another job's.
    """
    try:
        parts = checkpoint(of_job(job_id, name))
    except ValueError:
        parts = {}
    if parts.get("job_id") != job_id or "attempt" not in parts:
        raise InvalidInput(
            f"{name!r} is not a checkpoint of job {job_id}",
            hint=f"write ATTEMPT.NUMBER as `forge checkpoints {job_id}` shows them; only a new job"
            " can start from another job's: forge rerun",
        )
    return parts["attempt"], parts["number"]


def of_job(job_id: int, name: str) -> str:
    """Return the name of a checkpoint with its job, by default this one."""
    return f"{job_id}:{name.strip()}" if OWN_NAME.fullmatch(name.strip()) else name


def command_line(words: Sequence[str] | None, folder: Path | None) -> Sequence[str] | str | None:
    """Return the command after `--`; a line in quotes, which names no file, as one text.

    Raises:
        ClientError: it is written for a shell, or its quotation marks do not match.
    """
    if words is None:
        return None
    try:
        if len(words) > 1 or len(words[0].split()) < 2:  # noqa: PLR2004 - two words
            return without_signs(words)
        if ((folder or Path()) / words[0]).is_file():
            return words
        words_of(words[0])
    except NeedsShell as error:
        fault, instead = error.fault, error.instead
    except ValueError as error:
        fault, instead = f"{words[0]!r}: {str(error).lower()}", "close the quotation marks"
    else:
        return words[0]
    raise InvalidInput(f"command: {fault}", hint=instead)


def secret_names(texts: list[str] | None) -> list[str] | None:
    """Return the names of secrets.

    Raises:
        ClientError: one has a value, which is kept off the queue.
    """
    for name, sign, _ in (text.partition("=") for text in texts or ()):
        if sign:
            raise InvalidInput(
                f"--secret {name} takes only the name of the secret",
                hint=f"write --secret {name}; the value is a file {name} on the workers, in the"
                " folder that --secrets-dir of forge-worker names",
            )
    return texts


def environment(texts: Sequence[str]) -> dict[str, str]:
    """Return variables from NAME=VALUE, or from NAME with the value from this environment."""
    variables = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not name or not (sign or name in os.environ):
            raise InvalidInput(
                f"--env {text!r}: there is no such variable here",
                hint="write NAME=VALUE, or export NAME first",
            )
        if not VARIABLE.fullmatch(name):
            raise InvalidInput(
                f"--env {text!r}: {name!r} cannot be a variable's name",
                hint="begin it with a letter or _; then come letters, digits and _",
            )
        variables[name] = value if sign else os.environ[name]
    return variables


def labels(texts: Sequence[str]) -> dict[str, str]:
    """Parse labels from the command line; `ClientError` if one of them is not a label."""
    pairs = [text.partition("=") for text in texts]
    for (name, sign, value), text in zip(pairs, texts, strict=True):
        if not (name.strip() and sign and value.strip()):
            raise InvalidInput(
                f"--label {text!r} is not a label", hint="write NAME=VALUE, as in --label zone=eu*"
            )
    return {name.strip(): value.strip() for name, _, value in pairs}


def inputs(texts: Sequence[str]) -> dict[str, str]:
    """Parse inputs from the command line; `ClientError` if one of them has no source."""
    pairs = [text.partition("=") for text in texts]
    for (name, _, source), text in zip(pairs, texts, strict=True):
        if not (name and source):
            raise InvalidInput(
                f"--input {text!r} has no {'source' if name else 'name'}",
                hint="write NAME=SOURCE, as in --input data=s3://bucket/set",
            )
    return {name: source for name, _, source in pairs}


PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "labels": labels,
    "env": environment,
    "inputs": inputs,
    "secrets": secret_names,
}
"""How the texts of an option are read that has more in them than values."""
