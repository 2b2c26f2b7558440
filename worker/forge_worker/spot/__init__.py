"""Preemption notices: their source, and how many seconds are left."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

# The share of the notice period assumed to be left if the notice's age is unknown.
UNKNOWN_SHARE = 0.5


class NoticeKind(StrEnum):
    """Whether the machine will be taken, is likely to be, or no longer is."""

    INTERRUPTION = "interruption"
    REBALANCE = "rebalance"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice from a cloud or a signal; `left_s` is in seconds from now."""

    by: str
    kind: NoticeKind
    left_s: float = 0.0


def now() -> datetime:
    return datetime.now(UTC)


def left_s(
    at: datetime | None,
    said_at: datetime | None,
    most_s: float,
    clock: Callable[[], datetime] = now,
) -> float:
    """Return the seconds until `at`, at most the cloud's notice period `most_s`.

    They are counted from `said_at`, the server's own time, if known. Otherwise this machine's
    clock, which may be wrong, is used only if the result lies within the notice period.
    """
    if at is None:
        return most_s * UNKNOWN_SHARE
    if said_at is not None:
        return min(max((at - said_at).total_seconds(), 0.0), most_s)
    seconds = (at - clock()).total_seconds()
    return seconds if 0 <= seconds <= most_s else most_s * UNKNOWN_SHARE


def iso_time(text: object) -> datetime | None:
    """Parse a time as AWS writes it; None if it is not one."""
    try:
        return _in_utc(datetime.fromisoformat(str(text)))
    except ValueError:
        return None


def mail_time(text: object) -> datetime | None:
    """Parse a time as HTTP headers and Azure write it; None if it is not one."""
    try:
        return _in_utc(parsedate_to_datetime(str(text)))
    except ValueError:
        return None


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
