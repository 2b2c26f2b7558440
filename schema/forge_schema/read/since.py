"""How far back a report goes: `7d`, `2026-11-01`, `2026-11-01T08:00Z`."""

import re
from datetime import UTC, datetime, timedelta

from forge_schema.model.errors import ForgeError

AGE = re.compile(r"(\d{1,6})\s*([mhdw])")
UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class SinceInvalid(ForgeError):
    """It is neither an age nor a time."""

    code = "since_invalid"


def moment(text: str, now: datetime) -> datetime:
    """Return the moment that a text means; one without a zone is in UTC.

    Raises:
        SinceInvalid: it means none.
    """
    said = text.strip()
    try:
        if age := AGE.fullmatch(said):
            return now - timedelta(**{UNITS[age[2]]: int(age[1])})
        if "-" in said[1:]:
            when = datetime.fromisoformat(said)
            return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise SinceInvalid(
        f"{text!r} is no time to begin at", hint="write 90m, 12h, 7d, 4w, or a day as 2026-11-01"
    )
