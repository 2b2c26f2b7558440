"""Read a program's settings, and say everything that is wrong with them at once.

A line names the setting as it was given, by its flag or its variable, and the other one too. What
fails later ends the program with a line of the same form.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, CliApp, SettingsError

from forge_schema.database.connections import EXAMPLE
from forge_schema.database.connections import url_fault as database_fault
from forge_schema.model.errors import ForgeError, plainly
from forge_schema.model.quantities import counted
from forge_schema.storage.store_url import url_fault as store_fault

S = TypeVar("S", bound=BaseSettings)
EXIT_USAGE = 2
# Faults whose message may repeat the value, which can be no password.
SHOWN = ("_parsing", "_type", "_than", "_than_equal", "literal_error", "enum")
NO_JSON = re.compile(r'error parsing value for field "(\w+)"')
JSON = '{"ml-team": "submitter"}'
UNKNOWN = "unrecognized arguments: "


def read(
    program: str,
    kind: type[S],
    run: Callable[[], S],
    *,
    words: Mapping[str, str] | None = None,
    more: Callable[[Mapping[str, str]], Iterable[str]] = lambda _: (),
) -> S:
    """Return the settings; without valid ones, print a line for each fault and exit.

    Args:
        program: its name, with which each line begins.
        kind: the settings.
        run: reads them from the command line and the variables; the URLs of a database and a store
            are checked too.
        words: what to use instead of flags that it does not have, by the flag.
        more: returns further faults of what was given, by the name of the setting. If there are no
            others, the exit code is 1.
    """
    faults: list[str] = []
    settings: S | None = None
    try:
        settings = run()
    except SettingsError as error:
        faults = [_unreadable(str(error), kind, words or {})]
    except ValidationError as error:
        faults = [_line(kind, fault) for fault in error.errors()]
    code = EXIT_USAGE if faults else 1
    given = _given(kind)
    faults += [*_of_urls(kind, given), *more(given)]
    if settings is not None and not faults:
        return settings
    for fault in faults:
        sys.stderr.write(f"{program}: {fault}\n")
    sys.exit(code)


def of_command_line(kind: type[S]) -> S:
    """Return the settings of the command line and the variables.

    Without flags, there is no parser of some hundred of them to make.
    """
    settings: S = CliApp.run(kind) if sys.argv[1:] else kind()
    return settings


@contextmanager
def ending(program: str, code: Callable[[ForgeError], int] = lambda _: 1) -> Iterator[None]:
    """End the program with a line, and a hint, if what is done within fails for a known reason.

    Args:
        program: its name, with which the line begins.
        code: returns the exit code for an error of Forge's own.
    """
    try:
        yield
    except ForgeError as error:
        hint = f"\n  {error.hint}" if error.hint else ""
        sys.stderr.write(f"{program}: {error.message}{hint}\n")
        sys.exit(code(error))
    except OSError as error:
        sys.exit(f"{program}: {error}")


def _of_urls(kind: type[BaseSettings], given: Mapping[str, str]) -> Iterator[str]:
    if "database_url" in given and (why := database_fault(given["database_url"])):
        yield f"{place(kind, 'database_url')}: {why}; {EXAMPLE}"
    if "store_url" in given and (why := store_fault(given["store_url"])):
        yield f"{place(kind, 'store_url')}: {why}"


def place(kind: type[BaseSettings], name: str) -> str:
    """Return the name of a setting's flag and variable, first the one by which it was given."""
    flag, variable = _names(kind, name)
    if _by_flag(flag, sys.argv[1:]):
        return flag
    return f"{variable} ({flag})"


def unreadable_file(name: str) -> str:
    """Return why a file cannot be read, or ""."""
    try:
        with Path(name).open("rb"):
            return ""
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}"


def _line(kind: type[BaseSettings], fault: ErrorDetails) -> str:
    if not fault["loc"]:
        return plainly(fault["msg"])
    name = _field_of(kind, str(fault["loc"][0]))
    inside = ".".join(str(part) for part in fault["loc"][1:])
    field = kind.model_fields[name]
    where = place(kind, name) + (f", {inside}" if inside else "")
    if fault["type"] == "missing" or fault["input"] == "":
        return f"{where} is missing{_example(kind, name, field)}"
    if fault["type"] == "too_short" and "actual_length" in fault.get("ctx", {}):
        least, had = fault["ctx"]["min_length"], fault["ctx"]["actual_length"]
        message = f"has {had} of at least {counted(least, 'character')}"
        return f"{where}: {message}{_example(kind, name, field)}"
    message = plainly(fault["msg"])
    if fault["type"].endswith(SHOWN):
        message += f", and not {str(fault['input'])[:60]!r}"
    return f"{where}: {message}{_example(kind, name, field)}"


def _example(kind: type[BaseSettings], name: str, field: FieldInfo) -> str:
    default = field.get_default() if isinstance(field.default, int | float) else None
    default = None if isinstance(default, bool) else default
    example = field.examples[0] if field.examples else default
    variable = _names(kind, name)[1]
    return "" if example is None else f"; for example {variable}={example}"


def _unreadable(message: str, kind: type[BaseSettings], words: Mapping[str, str]) -> str:
    message = message.removeprefix("error parsing CLI: ")
    if field := NO_JSON.search(message):
        return f"{place(kind, field[1])}: it is not JSON, such as {JSON}"
    if message.startswith(UNKNOWN):
        flag = message.removeprefix(UNKNOWN).split()[0].partition("=")[0]
        if near := words.get(flag) or _near(flag, kind):
            return f"{message}; {near}; --help lists the flags"
    return f"{message}; --help lists the flags"


def _near(flag: str, kind: type[BaseSettings]) -> str:
    flags = [_names(kind, name)[0] for name in kind.model_fields]
    near = get_close_matches(flag, flags, n=1, cutoff=0.75)
    return f"did you mean {near[0]}?" if near else ""


def _given(kind: type[BaseSettings]) -> dict[str, str]:
    """Return what was given for each setting, as text; a flag replaces its variable."""
    values_given: dict[str, str] = {}
    for name in kind.model_fields:
        flag, variable = _names(kind, name)
        values = [*_values(flag, sys.argv[1:])] or [os.environ.get(variable, "")]
        if values[-1]:
            values_given[name] = values[-1]
    return values_given


def _values(flag: str, words: Sequence[str]) -> Iterator[str]:
    for word, after in zip_longest(words, words[1:], fillvalue=""):
        if word == flag:
            yield after
        elif word.startswith(f"{flag}="):
            yield word.partition("=")[2]


def _by_flag(flag: str, words: Sequence[str]) -> bool:
    forms = {flag, f"--no-{flag.removeprefix('--')}"}
    return any(word.partition("=")[0] in forms for word in words)


def _names(kind: type[BaseSettings], name: str) -> tuple[str, str]:
    alias = str(kind.model_fields[name].validation_alias or name)
    return f"--{alias.replace('_', '-')}", f"FORGE_{alias.upper()}"


def _field_of(kind: type[BaseSettings], message: str) -> str:
    fields: dict[str, Any] = kind.model_fields
    aliases = {str(field.validation_alias): name for name, field in fields.items()}
    return message if message in fields else aliases.get(message, message)
