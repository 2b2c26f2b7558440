"""Names what is wrong as it was typed: the option of a field, and the help of its command."""

from __future__ import annotations

from collections.abc import Sequence

from forge_client.cli.quick.arguments import Command, commands
from forge_client.errors import FIELDS_HINT, ClientError

OF_FIELDS = "spec_invalid"


def name_as_typed(error: ClientError, words: Sequence[str]) -> None:
    """Have an error about a field of a job say which option it is, and whose help lists it."""
    if error.code != OF_FIELDS:
        return
    words = words[: words.index("--")] if "--" in words else words
    path, command = _meant(words)
    if path and error.hint == FIELDS_HINT:
        error.hint = f"`forge {' '.join(path)} --help` lists the options"
    place, colon, fault = error.message.partition(": ")
    if colon and (option := _option(command, place.split("."), words)):
        error.message = f"{option}: {fault}"


def _meant(words: Sequence[str]) -> tuple[list[str], Command]:
    path: list[str] = []
    command = commands()
    for word in words:
        if word in command.get("commands", {}):
            path.append(word)
            command = command["commands"][word]
    return path, command


def _option(command: Command, place: Sequence[str], words: Sequence[str]) -> str:
    """Return the option of a field, below whichever table it is, if it was typed."""
    typed = {word.partition("=")[0] for word in words if word.startswith("-")}
    for name in reversed(place):
        for parameter in command.get("parameters", ()):
            if parameter["name"] == name and (given := typed & {*parameter.get("opts", ())}):
                return min(given)
    return ""
