"""Answers a command line quickly, if it is one of those."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from forge_client.cli.quick.arguments import Declined

HELP = (["--help"], ["-h"], ["help", "all"])
SHORT: tuple[list[str], ...] = ([], ["help"])
COMPLETE = "_FORGE_COMPLETE"
COMMANDS = ("ps", "show", "logs", "cancel")
SUBMIT, UP = "submit", "up"
REPORT = ["report", "show"]


def answered(words: Sequence[str]) -> bool:
    """Answer a command line; False if the whole command has to.

    Raises:
        ClientError: what was asked for failed.
    """
    try:
        _answer([*words])
    except Declined:
        return False
    return True


def _answer(words: list[str]) -> None:
    # Each of these imports what only it needs.
    if COMPLETE in os.environ:
        from forge_client.cli.quick.completion import complete  # noqa: PLC0415

        sys.stdout.write(complete(os.environ[COMPLETE]))
    elif words in HELP:
        from forge_client.cli.quick.help import write_help  # noqa: PLC0415

        write_help()
    elif words in SHORT:
        from forge_client.cli.quick.help import write_short_help  # noqa: PLC0415

        write_short_help()
    elif words[0] == "help":
        # As `forge submit --help`, which only the whole command knows.
        sys.argv[1:] = [*words[1:], "--help"]
        raise Declined
    elif words == ["--version"]:
        from importlib.metadata import version  # noqa: PLC0415

        sys.stdout.write(f"forge {version('forge-queue')}\n")
    elif words and words[0] in COMMANDS:
        _answer_at(words[:1], words[1:])
    elif words[:2] == REPORT:
        _answer_at(REPORT, words[2:])
    elif words[:1] == [SUBMIT]:
        _submit(words[1:])
    elif words[:1] == [UP]:
        from forge_client.cli.quick.starting import up  # noqa: PLC0415

        up(_given([UP], words[1:]))
    else:
        raise Declined


def _answer_at(path: Sequence[str], words: list[str]) -> None:
    from forge_client.cli.quick.answers import ANSWERS  # noqa: PLC0415 - as above

    ANSWERS[" ".join(path)](_given(path, words))


def _given(path: Sequence[str], words: list[str]) -> dict[str, Any]:
    """Return what the words after a command's name say."""
    from forge_client.cli.quick.arguments import commands, parsed  # noqa: PLC0415 - as above

    declared = commands()
    for name in path:
        declared = declared["commands"][name]
    return parsed(declared["parameters"], words)


def _submit(words: list[str]) -> None:
    command = None
    if "--" in words:
        at = words.index("--")
        words, command = words[:at], words[at + 1 :]
        if not command or not command[0].strip():
            raise Declined
    given = _given([SUBMIT], words)
    from forge_client.cli.quick.answers import submit  # noqa: PLC0415 - as above

    submit(given, command)
