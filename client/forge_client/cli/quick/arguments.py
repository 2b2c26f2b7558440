"""The words of a command line, read by the table of commands."""

from collections.abc import Iterator, Sequence
from typing import Any

from forge_client.cli.quick.declined import Declined
from forge_client.cli.quick.table import Parameter


def parsed(parameters: Sequence[Parameter], words: Sequence[str]) -> dict[str, Any]:
    """Return what was given, by the names of the parameters: True, a text, or several texts.

    Raises:
        Declined: a word needs more than this, or is wrong.
    """
    options = {option: one for one in parameters for option in one.get("opts", ())}
    given: dict[str, Any] = {}
    rest: list[str] = []
    coming = iter(words)
    for word in coming:
        if word.startswith("-"):
            _option(options, word, coming, given)
        else:
            rest.append(word)
    return {**given, **_arguments([one for one in parameters if "opts" not in one], rest)}


def _option(
    options: dict[str, Parameter], word: str, coming: Iterator[str], given: dict[str, Any]
) -> None:
    name, equals, text = word.partition("=")
    one = options.get(name)
    if (
        one is None
        or one["name"] == "help"
        or name in one.get("off", ())
        or (equals and not name.startswith("--"))
    ):
        raise Declined
    if one.get("flag"):
        if equals:
            raise Declined
        given[one["name"]] = True
        return
    value = text if equals else next(coming, "")
    if not value or value.startswith("-"):
        raise Declined
    if one.get("many"):
        given.setdefault(one["name"], []).append(value)
    else:
        given[one["name"]] = value


def _arguments(parameters: Sequence[Parameter], words: list[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for one in parameters:
        if not words:
            break
        given[one["name"]], words = (words, []) if one.get("many") else (words[0], words[1:])
    if words or "" in given.values():
        raise Declined
    return given


def whole_number(text: str | None, least: int, most: int | None = None) -> int | None:
    """Return a number that was given.

    Raises:
        Declined: it is none, or out of bounds.
    """
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) < least:
        raise Declined
    if most is not None and int(text) > most:
        raise Declined
    return int(text)
