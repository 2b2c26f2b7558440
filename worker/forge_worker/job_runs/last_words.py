"""The last words of a failed job: the part of its output that its end quotes.

The first line is the summary that tables show; the last lines follow unchanged.
"""

import re
from contextlib import suppress
from pathlib import Path
from signal import Signals

from forge_schema.model.lease import NAMES_RANK

from forge_worker.attempt.redact import Redactor
from forge_worker.prepare.pip_install import INSTALLED
from forge_worker.runners.runner import SIGNAL_BASE, Exit

LINES, WIDTH, BYTES = 10, 300, 32 << 10
NOTE = "forge: "
TRACEBACK = "Traceback (most recent call last):"
# Colours, cursor moves and other characters that a terminal would not show.
UNSHOWN = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*\x07?|[\x00-\x08\x0b-\x1f\x7f]")
# A Python program that exits with its child's return code, as DeepSpeed's launcher does, exits with
# this less the signal that killed the child.
NEGATIVE = 256
DEADLY = ("SIGILL", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGSEGV", "SIGTERM")


def last_words(exited: Exit, log: Path, redactor: Redactor, *, below: Path) -> str:
    """Return why a job failed, quoted from its output.

    Args:
        exited: how it ended.
        log: the file with its output.
        redactor: replaces its secrets.
        below: its work folder; its paths are quoted relative to it, so attempts look the same.
    """
    lines = _lines(_tail(log, redactor), {f"{below}/", f"{below.resolve()}/"})
    gist, killed = _gist(lines[-LINES:]), _killed(exited.code)
    said = f"{killed}; last output: {gist}" if killed and gist else killed or gist
    said = _rank(lines) or said
    first = "; ".join(filter(None, [said, exited.detail])) or "no output"
    return "\n".join([first, *lines[-LINES:]] if lines[1:] else [first])


def _rank(lines: list[str]) -> str:
    """Return which rank failed first, and with which exception, if a launcher said so at the end.

    The launcher's own words about it may be longer than what is quoted.
    """
    named = next((line for line in lines[-LINES:] if NAMES_RANK.match(line)), "")
    raised = _raised(lines) if named else ""
    return f"{named}; last output: {raised}" if raised else named


def _tail(log: Path, redactor: Redactor) -> str:
    data = b""
    with suppress(OSError), log.open("rb") as file:
        begin = max(0, file.seek(0, 2) - BYTES - redactor.reach)
        file.seek(begin)
        # A secret that is cut off at the start would not be recognised, so read more and drop it.
        data = redactor.cover(file.read())[redactor.reach if begin else 0 :]
    return data.decode(errors="replace")


def _lines(text: str, below: set[str]) -> list[str]:
    """Return the job's lines that are not blank; if there are none, the worker's last note."""
    _, _, text = text.rpartition(f"{NOTE}{INSTALLED}\n")
    shown = (_shown(line, below) for line in text.split("\n"))
    lines = [line[:WIDTH] for line in shown if line]
    own = [line for line in lines if not line.startswith(NOTE)]
    return own or [line.removeprefix(NOTE) for line in lines[-1:]]


def _shown(line: str, below: set[str]) -> str:
    """Return what a terminal would finally have shown: a progress bar overwrites itself."""
    shown = UNSHOWN.sub("", line.rstrip("\r").rpartition("\r")[2]).rstrip()
    for folder in below:
        shown = shown.replace(folder, "")
    return shown


def _gist(lines: list[str]) -> str:
    """Return the most telling line: the exception of the last traceback, else the last line.

    Lines without a letter or a digit are passed over: mpirun frames its messages with dashes.
    """
    worded = [line for line in lines if any(map(str.isalnum, line))] or lines
    return _raised(lines) or (worded[-1] if worded else "")


def _raised(lines: list[str]) -> str:
    """Return the exception of the last traceback, or an empty text."""
    last = max((n for n, line in enumerate(lines) if line == TRACEBACK), default=len(lines))
    return next((line for line in lines[last + 1 :] if not line[0].isspace()), "")


def _killed(code: int | None) -> str:
    if code is None or code <= SIGNAL_BASE:
        return ""
    with suppress(ValueError):
        return f"killed by {Signals(code - SIGNAL_BASE).name}"
    name = next((name for name in DEADLY if code == NEGATIVE - Signals[name]), "")
    return f"a process was killed by {name} (exit code {code - NEGATIVE})" if name else ""
