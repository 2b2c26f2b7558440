"""The kinds of requests, which have threads and connections of their own."""

from contextvars import ContextVar
from enum import StrEnum

REPORTS = ("/api/v1/reports/", "/reports/")
# These wait in a coroutine, or need no thread.
NEVER_HELD = ("/health", "/api/v1/objects/", "/static/")
WORKERS = "/api/v1/workers/"
# What workers read: other paths below WORKERS are people's.
READ_BY_WORKERS = (f"{WORKERS}stream", f"{WORKERS}job/")


class Part(StrEnum):
    """The kind of a request. Reads and reports have connections of their own."""

    PROTOCOL = "protocol"
    CHANGES = "changes"
    READS = "reads"
    REPORTS = "reports"


part: ContextVar[Part] = ContextVar("part", default=Part.PROTOCOL)


def part_of(method: str, path: str) -> Part:
    """Return the part that a request belongs to."""
    if path.startswith(NEVER_HELD):
        return Part.PROTOCOL
    if path.startswith(READ_BY_WORKERS if method == "GET" else WORKERS):
        return Part.PROTOCOL
    if method != "GET":
        return Part.CHANGES
    return Part.REPORTS if path.startswith(REPORTS) else Part.READS
