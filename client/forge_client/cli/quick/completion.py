"""What a shell completes, found in the table of commands or asked of the server."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from forge_schema.model.states import StateWord

from forge_client.cli.quick.arguments import Command, Declined, Parameter, commands
from forge_client.plain.wire import NotPlain

if TYPE_CHECKING:
    from forge_client.backend import Backend

Item: TypeAlias = tuple[str, str]
"""A word, and what shells that show remarks say of it."""

# What a shell would take for something else than a letter.
SPECIAL = frozenset("'\"\\$`")
ZSH = {'"': '""', "'": "''", "$": "\\$", "`": "\\`", ":": "\\\\:"}
# Nobody waits longer for a completion.
PATIENCE_S = 3.0
NEWEST = 50
Known: TypeAlias = Iterable[Item]


def known_jobs(backend: Backend) -> Known:
    """Yield what names a job, with a remark."""
    jobs = backend.jobs(count=NEWEST)
    if jobs:
        yield "@last", "your newest job"
    yield from ((str(job.job_id), f"{job.name}, {job.state}") for job in jobs)
    # A name that several jobs have names none of them.
    counts = Counter(job.name for job in jobs)
    yield from ((job.name, f"{job.job_id}, {job.state}") for job in jobs if counts[job.name] == 1)


def terms(incomplete: str) -> list[str]:
    """Complete the keys of a query, and the states."""
    # It is large.
    from forge_schema.job_filter import KEYS  # noqa: PLC0415

    known = [f"{key}:" for key in KEYS] + [f"state:{word}" for word in StateWord]
    shown = known if ":" in incomplete else known[: len(KEYS)]
    return [term for term in shown if term.startswith(incomplete)]


def states(incomplete: str) -> list[str]:
    """Complete the states of jobs, which need no queue."""
    return [word.value for word in StateWord if word.startswith(incomplete)]


def complete(instruction: str) -> str:
    """Return the answer to a shell's completion script, as typer would give it.

    Raises:
        Declined: it is another shell, or typer has to read the line.
    """
    match instruction:
        case "complete_bash":
            words = _words(os.environ.get("COMP_WORDS", ""))
            at = int(os.environ.get("COMP_CWORD", "0"))
            typed = _items(words[1:at], words[at] if at < len(words) else "")
            return "\n".join(word for word, _ in typed) + "\n"
        case "complete_zsh":
            items = "\n".join(map(_of_zsh, _typed()))
            return f"_arguments '*: :(({items}))'\n" if items else "_files\n"
        case "complete_fish" if os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "get-args":
            return "\n".join(f"{word}\t{text}" if text else word for word, text in _typed()) + "\n"
        case _:
            raise Declined


def _words(line: str) -> list[str]:
    if SPECIAL & {*line}:
        raise Declined
    return line.split()


def _typed() -> list[Item]:
    line = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    words = _words(line)[1:]
    incomplete = words.pop() if words and not line.endswith(" ") else ""
    return _items(words, incomplete)


def _of_zsh(item: Item) -> str:
    word, text = ("".join(ZSH.get(char, char) for char in text) for text in item)
    return f'"{word}":"{text}"' if text else f'"{word}"'


def _items(words: Sequence[str], incomplete: str) -> list[Item]:
    """Return what may stand at the end of a line."""
    command, given, waiting, arguments = _read(commands(), words)
    if "=" in incomplete:
        raise Declined
    items: Iterable[Item]
    if incomplete.startswith("-"):
        items = _options(command["parameters"], given)
    elif waiting is not None:
        items = _values(waiting, incomplete)
    elif "commands" in command:
        items = [(name, subcommand["help"]) for name, subcommand in command["commands"].items()]
    else:
        open_ones = (parameter for parameter in command["parameters"] if "opts" not in parameter)
        left = [
            parameter
            for n, parameter in enumerate(open_ones)
            if n >= arguments or parameter.get("many")
        ]
        items = _values(left[0], incomplete) if left else ()
    return [item for item in items if item[0].startswith(incomplete)]


def _read(
    command: Command, words: Sequence[str]
) -> tuple[Command, set[str], Parameter | None, int]:
    """Return the command, its given parameters, an option without its value, and the arguments."""
    given: set[str] = set()
    waiting: Parameter | None = None
    arguments = 0
    for word in words:
        options = {
            name: parameter
            for parameter in command["parameters"]
            for name in parameter.get("opts", ())
        }
        if waiting is not None:
            waiting = None
        elif word.startswith("-"):
            if word not in options:
                raise Declined
            given.add(options[word]["name"])
            waiting = None if options[word].get("flag") else options[word]
        elif "commands" not in command:
            arguments += 1
        elif word in command["commands"]:
            command, given = command["commands"][word], set()
        else:
            raise Declined
    return command, given, waiting, arguments


def _options(parameters: Sequence[Parameter], given: set[str]) -> list[Item]:
    return [
        (name, parameter.get("help", ""))
        for parameter in parameters
        if parameter.get("many") or parameter["name"] not in given
        for name in parameter.get("opts", ())
    ]


def _values(parameter: Parameter, incomplete: str) -> Iterable[Item]:
    completes: str = parameter.get("completes", "")
    if completes == "jobs":
        return _asked(known_jobs)
    if completes in OWN:
        return [(word, "") for word in OWN[completes](incomplete)]
    if completes:
        raise Declined
    return [(word, "") for word in parameter.get("choices", ())]


OWN: Mapping[str, Callable[[str], list[str]]] = {"states": states, "terms": terms}


def _asked(known: Callable[[Backend], Iterable[Item]]) -> list[Item]:
    from forge_client.plain.backend import PlainBackend  # noqa: PLC0415 - only for names
    from forge_client.plain.place import server_place  # noqa: PLC0415 - as above

    try:
        place = server_place()
    except (NotPlain, OSError) as error:
        raise Declined from error
    # Whatever goes wrong, a person who types must not see it, nor wait any longer.
    with suppress(Exception), PlainBackend(place, _nobody, patience_s=PATIENCE_S) as backend:
        return [*known(backend)]  # type: ignore[arg-type]  # it has the verbs that are called
    return []


def _nobody() -> NoReturn:
    raise NotPlain("nobody else is asked")
