"""A page of a job's output: as much as an answer holds, and where to continue."""

import re
from typing import NamedTuple

from forge_schema.model.quantities import size_text
from forge_schema.model.reading import BEGINNING

from forge_client.backend import Backend
from forge_client.errors import InvalidInput
from forge_client.results.log_reader import LogPart, LogReader, Start, tail

# Colours and movements of the cursor, which only a terminal understands.
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
FROM_START = "start"
# Of the last chunk read, its place; where it ends; and how much of the next was read too.
CURSOR = re.compile(r"\d{1,16}:\d{1,5}:-?\d{1,10}:\d{1,16}:\d{1,16}", re.ASCII)


class LogPage(NamedTuple):
    """Text of a log; `cursor` is where the next page begins, which `more` says is there by now."""

    text: str
    cursor: str
    more: bool


def page(
    backend: Backend, job_id: int, part: LogPart, cursor: str, most: int, *, final: bool
) -> LogPage:
    """Return the output after a cursor, of at most so many bytes; without a cursor its last lines.

    `final` is as `LogReader.new` has it.

    Raises:
        ClientError: the cursor is none of this log.
    """
    reader = LogReader(backend, job_id, part, _start(backend, job_id, part, cursor))
    data, at, more = bytearray(), reader.at, False
    for piece in reader.new(final=final):
        if piece.missing > 0:
            why = f": {reader.damaged.message}" if reader.damaged else ""
            data += f"\n[{size_text(piece.missing)} cannot be read{why}]\n".encode()
        taken = _cut(piece.data, max(most - len(data), 0))
        data += piece.data[:taken]
        if taken < len(piece.data):
            # Within a chunk: after the one before, so far into this one.
            start = reader.at.end - at.skip - len(piece.data)
            at, more = Start(at.place, start, at.skip + taken), True
            break
        at = reader.at
    where = ":".join(str(number) for number in (*at.place, at.end, at.skip))
    return LogPage(plain(data.decode("utf-8", "replace")), where, more)


def plain(text: str) -> str:
    """Return text as a terminal would end up showing it, without colours.

    Of a line that is written again and again, as progress bars are, the last state stays.
    """
    lines = ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def _cut(content: bytes, room: int) -> int:
    """Return how much of some output is taken: whole lines if there are any."""
    if len(content) <= room:
        return len(content)
    return content.rfind(b"\n", 0, room) + 1 or room


def _start(backend: Backend, job_id: int, part: LogPart, cursor: str) -> Start:
    if cursor == FROM_START:
        return Start(BEGINNING, 0)
    if not cursor:
        return tail(backend, job_id, part) or Start(BEGINNING, 0)
    if not CURSOR.fullmatch(cursor):
        raise InvalidInput(
            f"{cursor[:100]!r} is no cursor of a log",
            hint=f"leave it out, or give {FROM_START!r} or the cursor of an earlier answer",
        )
    token, rank, number, end, skip = map(int, cursor.split(":"))
    return Start((token, rank, number), end, skip)
