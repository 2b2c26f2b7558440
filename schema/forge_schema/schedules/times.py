"""The times of a cron expression, in a time zone's local time."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger

from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import counted

# In cron, a week begins on Sunday, which is 0 and 7. APScheduler counts from Monday.
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
SUNDAY_AT_THE_END = 7
# The other fields of cron in its order, and what stands in them.
BOUNDS = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day of the month": "1 to 31",
    "month": "1 to 12, or jan to dec",
}
FIELDS = len(BOUNDS) + 1
NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
# 29 February falls on a given weekday every 28 years, or every 40 around a year like 2100.
HORIZON = timedelta(days=50 * 366)
INSTANT = timedelta(microseconds=1)
HINT = "write minute, hour, day of the month, month and day of the week, as in '0 3 * * 1-5'"


def spelled_out(expression: str) -> str:
    """Return the five fields that a word such as `@daily` stands for; any other text as it is."""
    return NICKNAMES.get(expression.strip().lower(), expression)


class CronInvalid(ForgeError):
    """A text is not a cron expression, or it never falls due."""


class TimezoneUnknown(ForgeError):
    """There is no time zone of this name."""


class Cron:
    """The times of a cron expression in a time zone.

    A time is a reading of the clock on the wall, and each reading counts once. When the clock is
    set back, the second pass of the repeated hour is left out. When it is set forward, a time in
    the skipped hour falls due as much later.

    Args:
        expression: minute, hour, day of the month, month and day of the week, as in crontab(5).
        timezone: a name such as `Europe/Berlin`.

    Raises:
        CronInvalid: it is not a cron expression.
        TimezoneUnknown: there is no such time zone.
    """

    def __init__(self, expression: str, timezone: str) -> None:
        self._expression = expression
        self._zone = _zone(timezone)
        try:
            self._triggers = _triggers(spelled_out(expression).split())
        except ValueError as error:
            raise CronInvalid(
                f"the cron expression {expression!r} is invalid: {error}", hint=HINT
            ) from error

    def after(self, moment: datetime) -> datetime:
        """Return the first time after a moment, in the time zone.

        Raises:
            CronInvalid: there is none.
        """
        following = next(self._times(moment), None)
        if following is None:
            raise CronInvalid(
                f"the cron expression {self._expression!r} never falls due",
                hint="choose a day that the month has",
            )
        return following

    def following(self, moment: datetime, count: int) -> list[datetime]:
        """Return the first times after a moment, in the time zone; fewer if there are no more."""
        return list(islice(self._times(moment), count))

    def _times(self, moment: datetime) -> Iterator[datetime]:
        # Readings of the wall's clock are calculated as if in UTC, whose clock is never set.
        reading = moment.astimezone(self._zone).replace(tzinfo=UTC)
        for trigger in self._triggers:
            trigger.end_date = reading + HORIZON
        either = OrTrigger(self._triggers)
        last = moment
        while reading := either.get_next_fire_time(None, reading + INSTANT):
            instant = reading.replace(tzinfo=self._zone).astimezone(UTC)
            if instant > last:
                last = instant
                yield instant.astimezone(self._zone)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        near = get_close_matches(name, available_timezones(), n=1)
        raise TimezoneUnknown(
            f"there is no time zone {name!r}",
            hint=f"did you mean {near[0]}?" if near else "write UTC or a name like Europe/Berlin",
        ) from error


def _triggers(fields: list[str]) -> list[CronTrigger]:
    if len(fields) != FIELDS:
        raise ValueError(f"it needs {counted(FIELDS, 'field')}, not {len(fields)}")
    try:
        return _by_either(fields)
    except ValueError:
        for what, field in zip(BOUNDS, fields, strict=False):
            _check(what, field)
        raise


def _by_either(fields: list[str]) -> list[CronTrigger]:
    *others, month_day, month, week_day = fields
    week_days = _week_days(week_day)
    # As in crontab(5): if both days are given, either will do. APScheduler requires both.
    if month_day.startswith("*") or week_day.startswith("*"):
        return [_trigger([*others, month_day, month, week_days])]
    by_either = ([month_day, month, "*"], ["*", month, week_days])
    return [_trigger([*others, *days]) for days in by_either]


def _check(what: str, field: str) -> None:
    """Refuse a field in our words; each field is checked alone."""
    alone = [field if name == what else "*" for name in BOUNDS]
    try:
        _trigger([*alone, "*"])
    except ValueError:
        raise ValueError(f"{field!r} is no {what}: write {BOUNDS[what]}") from None


def _trigger(fields: list[str]) -> CronTrigger:
    return CronTrigger.from_crontab(" ".join(fields), timezone=UTC)


def _week_days(field: str) -> str:
    """Return cron's days of the week by their names."""
    days = {day for part in field.lower().split(",") for day in _part(part)}
    return "*" if len(days) == len(DAYS) else ",".join(DAYS[day] for day in sorted(days))


def _part(part: str) -> list[int]:
    days, _, step = part.partition("/")
    first, dash, last = ("sun", "-", "sat") if days == "*" else days.partition("-")
    start, end = _day(first), _day(last) if dash else None
    if end is None:
        end = len(DAYS) - 1 if step else start
    elif end == 0 and start > 0:
        end = SUNDAY_AT_THE_END
    if start > end:
        raise ValueError(f"the days {days!r} run backwards")
    if step and not (step.isdecimal() and int(step)):
        raise ValueError(f"{step!r} is not a step")
    return [day % len(DAYS) for day in range(start, end + 1, int(step or 1))]


def _day(text: str) -> int:
    if text in DAYS:
        return DAYS.index(text)
    if text.isdecimal() and int(text) <= SUNDAY_AT_THE_END:
        return int(text)
    raise ValueError(f"{text!r} is not a day of the week")
