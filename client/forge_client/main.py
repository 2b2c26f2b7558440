"""The `forge` command: answered quickly if it is one that is typed all day."""

import gc
import os
import sys
from collections.abc import Sequence
from typing import Any

# A command makes fifty thousand objects as it starts, none of them garbage. Looking for some again
# and again would take a tenth of its time.
gc.set_threshold(200_000)
from forge_schema.program import standard_streams, without_plugins_of_pydantic

without_plugins_of_pydantic()

# isort: split
from forge_client.cli.quick.arguments import Declined, commands, name_as_typed, parsed
from forge_client.cli.show import narration
from forge_client.errors import ClientError, ExitCode, as_client_error

# Command lines that are answered quickly; the others take the whole command.
HELP = (["--help"], ["-h"], ["help", "all"])
SHORT: tuple[list[str], ...] = ([], ["help"])
COMPLETE = "_FORGE_COMPLETE"
COMMANDS = ("ps", "show", "logs", "cancel")
SUBMIT, UP = "submit", "up"
REPORT = ["report", "show"]
# What Python has on no Windows.
UNIX = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"}


def main() -> None:
    """Run the command; every expected error becomes one line, a hint and an exit code."""
    standard_streams()
    try:
        _run()
    except SystemExit as end:
        status = end.code
    except KeyboardInterrupt:
        status = ExitCode.INTERRUPTED
    else:
        status = ExitCode.OK
    finally:
        _flush()
    sys.stderr.flush()
    # Freeing every object would take a fifth of the command's time.
    os._exit(status if isinstance(status, int) else int(status is not None))


def _flush() -> None:
    """Flush stdout; a closed pipe, as in `forge ps | head`, is not an error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Otherwise the flush would fail again when the interpreter exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> None:
    try:
        # Every error of Forge's own is one of the user's, whichever part raised it.
        with as_client_error():
            if not answered(sys.argv[1:]):
                # Most of what a command costs.
                from forge_client.cli.commands import app  # noqa: PLC0415

                app(prog_name="forge")
    except ClientError as error:
        _debug(error)
        name_as_typed(error, sys.argv[1:])
        narration.complain(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # As in `forge ps | head`, if the output is not kept until the end.
        sys.exit(ExitCode.FAILED)
    except Exception as error:  # noqa: BLE001 - the last line of defence
        _debug(error)
        told = _of_python(error)
        narration.complain(told)
        sys.exit(told.exit_code)


def _of_python(error: Exception) -> ClientError:
    if isinstance(error, OSError):
        return _of_the_system(error)
    if isinstance(error, ModuleNotFoundError) and error.name in UNIX:
        return _not_here(error)
    if isinstance(error, UnicodeEncodeError) and (word := _undecodable()):
        hint = "write it again, in the encoding of this terminal"
        return ClientError(f"{word!r} is not UTF-8 text", hint=hint, exit_code=ExitCode.USAGE)
    return ClientError(
        f"unexpected error: {type(error).__name__}: {error}",
        hint="FORGE_DEBUG=1 shows where; please report it",
    )


def _undecodable() -> str:
    """Return a word of the command line that has other bytes than those of UTF-8; else ""."""
    return next((word for word in sys.argv if word.encode(errors="ignore").decode() != word), "")


def _of_the_system(error: OSError) -> ClientError:
    if isinstance(error, FileNotFoundError) and not error.filename and not _has_current_folder():
        hint = "change to one that is there: cd"
        return ClientError("the current folder no longer exists", hint=hint)
    what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return ClientError(what, hint="check the path, the disk and your permissions there")


def _has_current_folder() -> bool:
    try:
        return bool(os.getcwd())  # noqa: PTH109 - asked of the system, and no path is made of it
    except FileNotFoundError:
        return False


def _not_here(error: ModuleNotFoundError) -> ClientError:
    return ClientError(
        f"this command runs on Linux and macOS only: this system's Python has no {error.name}",
        hint="on Windows, run it in WSL 2: `wsl --install`",
    )


def _debug(error: Exception) -> None:
    if os.environ.get("FORGE_DEBUG"):
        raise error


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


if __name__ == "__main__":
    main()
