"""A page of a job's output: as much as an answer holds, and where to continue."""

import re
from typing import NamedTuple

from forge_schema.model.quantities import size_text
from forge_schema.model.reading import BEGINNING

from forge_client.backend import Backend
from forge_client.errors import ClientError
from forge_client.results.log_reader import LogPart, Start, log_bytes, tail

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


def page(backend: Backend, job_id: int, part: LogPart, cursor: str, most: int) -> LogPage:
    """Return the output after a cursor, of at most so many bytes; without a cursor its last lines.

    Raises:
        ClientError: the cursor is none of this log.
    """
    place, end, skip = _start(backend, job_id, part, cursor)
    data, more = bytearray(), False
    while not more and (chunks := backend.log_chunks(job_id, after=place, **part.chosen)):
        for chunk in chunks:
            content = log_bytes(backend, chunk)
            if isinstance(content, ClientError):
                data += f"\n[{size_text(chunk.bytes)} cannot be read: {content.message}]\n".encode()
                content = b""
            room = most - len(data)
            taken = _cut(content[skip:], room)
            data += content[skip : skip + taken]
            if skip + taken < len(content):
                end, skip, more = chunk.start, skip + taken, True
                break
            place, end, skip = chunk.place, chunk.start + chunk.bytes, 0
    where = ":".join(str(number) for number in (*place, end, skip))
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
        raise ClientError(
            f"{cursor[:100]!r} is no cursor of a log",
            hint=f"leave it out, or give {FROM_START!r} or the cursor of an earlier answer",
            code="option_invalid",
        )
    token, rank, number, end, skip = map(int, cursor.split(":"))
    return Start((token, rank, number), end, skip)
