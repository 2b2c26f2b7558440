"""A notice: who says that the machine goes, and how many seconds are left."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

# Of a notice whose age nobody knows.
UNKNOWN_SHARE = 0.5


class Kind(StrEnum):
    """Whether the machine goes, is only likely to, or no longer is."""

    INTERRUPTION = "interruption"
    REBALANCE = "rebalance"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class Notice:
    """What a cloud, or a signal, says of this machine; `left_s` is counted from now."""

    by: str
    kind: Kind
    left_s: float = 0.0


def now() -> datetime:
    return datetime.now(UTC)


def left_s(
    at: datetime | None,
    said_at: datetime | None,
    most_s: float,
    clock: Callable[[], datetime] = now,
) -> float:
    """Return the seconds until `at`, never more than the notice that this cloud gives.

    They are counted from `said_at`, the server's own time, where it is known. This machine's clock
    may be wrong: what it makes of `at` is believed only if it lies within the notice.
    """
    if at is None:
        return most_s * UNKNOWN_SHARE
    if said_at is not None:
        return min(max((at - said_at).total_seconds(), 0.0), most_s)
    seconds = (at - clock()).total_seconds()
    return seconds if 0 <= seconds <= most_s else most_s * UNKNOWN_SHARE


def iso_time(text: object) -> datetime | None:
    """Return a moment as AWS writes it; None where it is none."""
    try:
        return _in_utc(datetime.fromisoformat(str(text)))
    except ValueError:
        return None


def mail_time(text: object) -> datetime | None:
    """Return a moment as HTTP headers and Azure write it; None where it is none."""
    try:
        return _in_utc(parsedate_to_datetime(str(text)))
    except ValueError:
        return None


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
