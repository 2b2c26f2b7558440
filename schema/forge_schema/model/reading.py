"""What is read of a record, or of a command, by models and by those who do without pydantic."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

from forge_schema.model.quantities import counted
from forge_schema.model.states import Phase, StateWord

if TYPE_CHECKING:
    from forge_schema.model.stored import LogChunk

SMALLINT = 2**15 - 1
INTEGER = 2**31 - 1
# The largest integer that every JSON reader keeps exact; no id comes near it.
LARGEST = 2**53 - 1

Place: TypeAlias = tuple[int, int, int]
"""Where a log chunk stands in the reading order: token, rank, number."""

BEGINNING: Place = (0, 0, -1)
THE_END: Place = (LARGEST, SMALLINT, INTEGER)
# Of artifacts, in one answer: with their URLs, they may have some thousand bytes each.
FILES = 250
# A user name and a password end with the last @ before the path.
LINK = re.compile(
    r"""(https?://)(?:[^\s"'<>\\/?#]*@)?([^\s"'<>\\/?#@]{1,300}(?:[/?#][^\s"'<>\\]{0,2000})?)""",
    re.ASCII,
)

# `7`, `@last`, `@2`: how people name jobs without a name.
HANDLE = r"[0-9]+|@(last|[1-9][0-9]{0,2})"
# As words of their own. A `;` may also be an argument, as of `find -exec`, and after an option each
# may be: `cut -d '|'`.
SIGNS = frozenset({"&&", "||", "|", "|&", "&", ">", ">>", "<", "<<", "2>", "2>>", "2>&1", "&>"})
# What stands in quotes or behind a backslash is meant as it is.
AS_IT_IS = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
# As the first word, these have a meaning only for a shell, and so has `FOO=1`.
BUILT_IN = frozenset({"cd", "export", "source"})
SETS = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
OF_GPUS = frozenset({"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"})
# In a line, also where it touches the word before or after it.
IN_A_LINE = re.compile(r"&&|\|\|?|(?<!\S)(?:[12&]?>>?|<<?)|;|&(?!\S)")

# Only type checkers see which fields these classes read: pydantic would make fields of them.


class JobReading:
    """What the state of a job says."""

    if TYPE_CHECKING:
        state: StateWord

    @property
    def terminal(self) -> bool:
        """Whether the job has ended."""
        return self.state.terminal


class ApprovalReading:
    """What an approval is about."""

    if TYPE_CHECKING:
        timeout_s: int | None
        gpu_hours: float | None
        cost: float | None
        most_cost: float | None

    @property
    def amount(self) -> str:
        """What one attempt of the job may spend, in a few words."""
        if self.timeout_s is None:
            return "an unlimited time"
        amounts = [f"{self.gpu_hours:.4g} GPU-hours"] if self.gpu_hours else []
        if self.most_cost is not None:
            amounts.append("an unknown cost" if self.cost is None else f"a cost of {self.cost:.2f}")
        return " and ".join(amounts)


class MemberReading:
    """What one rank of a job is doing."""

    if TYPE_CHECKING:
        phase: Phase
        step: int

    @property
    def doing(self) -> str:
        """What it is doing, in a word or two."""
        waits = self.phase == Phase.PREPARING and self.step > 0
        return "waiting for the others" if waits else self.phase


class ChunkReading:
    """Where a log chunk stands."""

    if TYPE_CHECKING:
        token: int
        rank: int
        number: int

    @property
    def place(self) -> Place:
        """Its position in the reading order."""
        return self.token, self.rank, self.number


class LogPlaces:
    """Reads a job's log by places, with the verb `log_page`."""

    if TYPE_CHECKING:
        log_page: Callable[..., list[LogChunk]]

    def log_chunks(
        self,
        job_id: int,
        *,
        after: Place = BEGINNING,
        attempt: int | None = None,
        rank: int | None = None,
        since: datetime | None = None,
    ) -> list[LogChunk]:
        """Return some log chunks after a place, in reading order; none when there are no more.

        With an attempt or a rank, only its own; with a time, those stored since.
        """
        return self.log_page(job_id, *after, attempt=attempt, of_rank=rank, since=since)

    def log_chunks_before(
        self,
        job_id: int,
        *,
        before: Place = THE_END,
        attempt: int | None = None,
        rank: int | None = None,
        since: datetime | None = None,
    ) -> list[LogChunk]:
        """Return some log chunks before a place, the last one first; otherwise as `log_chunks`."""
        return self.log_page(job_id, *before, attempt=attempt, of_rank=rank, since=since, last=True)


def id_of(handle: str) -> int | None:
    """Return the id that a job's handle is; None if it is a name."""
    return int(handle) if handle.isascii() and handle.isdecimal() else None


def is_handle(name: str) -> bool:
    """Tell whether commands take a name for an id, or for one of the newest jobs."""
    return re.fullmatch(HANDLE, name.strip(), re.ASCII) is not None


def link_of(value: object) -> str | None:
    """Return a metric that is the address of a page, such as a tracker's, and no number.

    It is without a user name and a password, which browsers would send and people would read.
    """
    match = LINK.fullmatch(value) if isinstance(value, str) else None
    return match[1] + match[2] if match else None


def files_and_links(stored: Sequence[Any]) -> str:
    """Return how many files and links there are among artifacts, in words."""
    links = sum(file.target is not None for file in stored)
    files = counted(len(stored) - links, "file")
    return f"{files} and {counted(links, 'link')}" if links else files


def report_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a report with their times parsed."""
    return [{name: _typed(name, value) for name, value in row.items()} for row in rows]


def _typed(name: str, value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        if name == "day":
            return date.fromisoformat(value)
        if name in TIME_COLUMNS or name.endswith("_at"):
            return datetime.fromisoformat(value)
    except ValueError:
        return value
    return value


# Of a report, besides `day` and names ending in `_at`.
TIME_COLUMNS = ("at", "since")
# How far back a report goes that would read the whole history, unless one says it: those that are
# summed up by day, and groups of all but those that show the current state.
REPORT_SINCE = "7d"


class NeedsShell(ValueError):
    """Only a shell would read a command so; `instead` is what to write."""

    def __init__(self, fault: str, instead: str) -> None:
        super().__init__(f"{fault}; {instead}")
        self.fault, self.instead = fault, instead


def words_of(line: str) -> list[str]:
    """Return the words of a line, split as a shell splits them.

    Raises:
        ValueError: its quotation marks do not match.
        NeedsShell: it needs a shell.
    """
    words = shlex.split(line)
    if sign := IN_A_LINE.search(AS_IT_IS.sub("_", line)):
        raise _no_shell(sign[0], line.strip())
    check_first(words, line.strip())
    return words


def without_signs(words: Sequence[str]) -> Sequence[str]:
    """Return the words of a command that somebody typed in a shell.

    Raises:
        NeedsShell: one of them is a sign for a shell, which is no argument there but by mistake.
    """
    after = zip(["-", *words], words, strict=False)
    if sign := next((word for before, word in after if word in SIGNS and before[:1] != "-"), ""):
        line = " ".join(word if word in SIGNS else shlex.quote(word) for word in words)
        raise _no_shell(sign, line)
    check_first(words, shlex.join(words))
    return words


def check_first(words: Sequence[str], line: str) -> None:
    """Check that a command does not begin as only a shell would read it.

    Raises:
        NeedsShell: it does.
    """
    first = words[0] if words else ""
    if sets := list(takewhile(SETS.fullmatch, words)):
        own, rest = " ".join(map(_option, sets)), shlex.join(words[len(sets) :])
        instead = f"write {own} -- {rest}, or bash -c ..."
        raise NeedsShell(f"no shell would read {first!r}", instead)
    if first in BUILT_IN:
        raise _no_shell(first, line)


def _option(variable: str) -> str:
    """Return the option in place of a variable before a command; Forge chooses the GPUs itself."""
    name, _, value = variable.partition("=")
    gpus = [each for each in value.split(",") if each.strip() not in {"", "-1"}]
    if name in OF_GPUS and gpus:
        return f"--gpu {len(gpus)}"
    return f"--env {name}={shlex.quote(value)}"


def _no_shell(sign: str, line: str) -> NeedsShell:
    instead = f"for one, write: bash -c {shlex.quote(line)}"
    return NeedsShell(f"no shell would read {sign!r}", instead)
