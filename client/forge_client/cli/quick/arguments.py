"""The words of a command line, read by the table of commands that `commands.json` is.

By the same table, what is wrong is named as it was typed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from os.path import dirname, join
from typing import Any, TypeAlias

from forge_client.errors import ClientError

OF_FIELDS = {"spec_invalid", "requirements_invalid"}

Parameter: TypeAlias = dict[str, Any]
"""Its `name`, and its `opts` unless it is an argument; what follows is there only if it is so.

`flag`: it takes no value; `off`: those of its `opts` that turn it off; `many`: it may be given
several times, or takes several words; `choices`: its values; `completes`: a function in
`completion.py`; `help`; `variable`: where it is read from, too.
"""

Command: TypeAlias = dict[str, Any]
"""Its `help` in one line, and its `parameters`; of a group, also its `commands`.

Of the whole, also the `keys` of forge.toml that are read without pydantic, as `project.Keys`.
"""


@cache
def commands() -> Command:
    """Return the whole command."""
    with open(join(dirname(__file__), "commands.json"), encoding="utf-8") as file:
        command: Command = json.load(file)
    return command


class Declined(Exception):
    """The whole command has to answer; nothing has been said or done yet."""


def parsed(parameters: Sequence[Parameter], words: Sequence[str]) -> dict[str, Any]:
    """Return what was given, by the names of the parameters: True, a text, or several texts.

    Raises:
        Declined: a word needs more than this, or is wrong.
    """
    options = {
        option: parameter for parameter in parameters for option in parameter.get("opts", ())
    }
    given: dict[str, Any] = {}
    rest: list[str] = []
    coming = iter(words)
    for word in coming:
        if word.startswith("-"):
            _option(options, word, coming, given)
        else:
            rest.append(word)
    return {**given, **_arguments([field for field in parameters if "opts" not in field], rest)}


def _option(
    options: dict[str, Parameter], word: str, coming: Iterator[str], given: dict[str, Any]
) -> None:
    name, equals, text = word.partition("=")
    parameter = options.get(name)
    if (
        parameter is None
        or parameter["name"] == "help"
        or name in parameter.get("off", ())
        or (equals and not name.startswith("--"))
    ):
        raise Declined
    if parameter.get("flag"):
        if equals:
            raise Declined
        given[parameter["name"]] = True
        return
    value = text if equals else next(coming, "")
    if not value or value.startswith("-"):
        raise Declined
    if parameter.get("many"):
        given.setdefault(parameter["name"], []).append(value)
    else:
        given[parameter["name"]] = value


def _arguments(parameters: Sequence[Parameter], words: list[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for parameter in parameters:
        if not words:
            break
        given[parameter["name"]], words = (
            (words, []) if parameter.get("many") else (words[0], words[1:])
        )
    if words or "" in given.values():
        raise Declined
    return given


def whole_number(text: str | None, least: int, most: int | None = None) -> int | None:
    """Return a number that was given; `Declined` if it is none, or out of bounds."""
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) < least:
        raise Declined
    if most is not None and int(text) > most:
        raise Declined
    return int(text)


def name_as_typed(error: ClientError, words: Sequence[str]) -> None:
    """Have an error about a field of a job say which option it is."""
    if error.code not in OF_FIELDS:
        return
    words = words[: words.index("--")] if "--" in words else words
    command = _meant(words)
    place, colon, fault = error.message.partition(": ")
    if colon and (option := _named_option(command, place.split("."), words)):
        error.message = f"{option}: {fault}"


def _meant(words: Sequence[str]) -> Command:
    command = commands()
    for word in words:
        command = command.get("commands", {}).get(word, command)
    return command


def _named_option(command: Command, place: Sequence[str], words: Sequence[str]) -> str:
    """Return the option of a field, below whichever table it is, if it was typed."""
    typed = {word.partition("=")[0] for word in words if word.startswith("-")}
    for name in reversed(place):
        for parameter in command.get("parameters", ()):
            if parameter["name"] == name and (given := typed & {*parameter.get("opts", ())}):
                return min(given)
    return ""
