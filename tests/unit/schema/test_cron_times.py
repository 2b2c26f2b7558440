"""Cron's own rules, on known dates, and by the clock on the wall where it is set twice a year."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from forge_schema.schedules.times import NICKNAMES, Cron, CronInvalid, TimezoneUnknown, spelled_out

# A Friday.
FRIDAY = datetime(2026, 11, 20, tzinfo=UTC)
SPRING = datetime(2026, 3, 29, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 24, 12, tzinfo=UTC)
BERLIN = "Europe/Berlin"


def days(expression: str, count: int = 3) -> list[str]:
    """Return the next days of an expression, with the day of the week."""
    return [f"{at:%a %d %b %H:%M}" for at in Cron(expression, "UTC").following(FRIDAY, count)]


def clock(expression: str, moment: datetime, count: int, zone: str = BERLIN) -> list[str]:
    """Return the next readings of the wall's clock, with the offset to UTC."""
    return [f"{at:%d %H:%M %z}" for at in Cron(expression, zone).following(moment, count)]


@pytest.mark.parametrize("sunday", ["0", "7", "sun", "SUN"])
def test_sunday_is_zero_and_seven(sunday: str) -> None:
    assert days(f"0 3 * * {sunday}", 2) == ["Sun 22 Nov 03:00", "Sun 29 Nov 03:00"]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("1", ["Mon 23", "Mon 30", "Mon 07"]),
        ("1-5", ["Fri 20", "Mon 23", "Tue 24"]),
        ("mon-fri", ["Fri 20", "Mon 23", "Tue 24"]),
        ("5-7", ["Fri 20", "Sat 21", "Sun 22"]),
        ("fri-sun", ["Fri 20", "Sat 21", "Sun 22"]),
        ("*/2", ["Sat 21", "Sun 22", "Tue 24"]),
        ("1/2", ["Fri 20", "Mon 23", "Wed 25"]),
        ("0-6/3", ["Sat 21", "Sun 22", "Wed 25"]),
        ("6,0", ["Sat 21", "Sun 22", "Sat 28"]),
        ("0-7", ["Fri 20", "Sat 21", "Sun 22"]),
    ],
)
def test_days_of_the_week_are_counted_as_in_cron(field: str, expected: list[str]) -> None:
    assert [day[:6] for day in days(f"0 3 * * {field}")] == expected


def test_either_of_two_given_days_will_do() -> None:
    assert days("0 0 1 * 1", 3) == ["Mon 23 Nov 00:00", "Mon 30 Nov 00:00", "Tue 01 Dec 00:00"]
    # As in cron, a step counts as no given day: then both are required.
    assert days("0 0 */15 * 1", 1) == ["Mon 01 Feb 00:00"]


def test_a_moment_that_is_a_time_itself_is_not_after_itself() -> None:
    at = datetime(2026, 11, 20, 3, tzinfo=UTC)
    cron = Cron("0 3 * * *", "UTC")
    assert cron.after(at - timedelta(microseconds=1)) == at
    assert cron.after(at) == at + timedelta(days=1)


def test_a_time_is_read_off_the_clock_of_the_zone() -> None:
    assert Cron("0 3 * * *", BERLIN).after(FRIDAY) == datetime(2026, 11, 20, 2, tzinfo=UTC)
    assert clock("0 3 * * *", FRIDAY, 1) == ["20 03:00 +0100"]


def test_a_time_that_does_not_exist_falls_due_once_an_hour_later() -> None:
    assert clock("30 2 * * *", SPRING, 2) == ["29 03:30 +0200", "30 02:30 +0200"]
    assert clock("0 * * * *", SPRING, 3) == ["29 03:00 +0200", "29 04:00 +0200", "29 05:00 +0200"]
    assert clock("30 2,3 * * *", SPRING, 2) == ["29 03:30 +0200", "30 02:30 +0200"]


def test_a_time_that_exists_twice_falls_due_once() -> None:
    assert clock("30 2 * * *", AUTUMN, 2) == ["25 02:30 +0200", "26 02:30 +0100"]
    readings = clock("*/30 2 * * *", AUTUMN, 3)
    assert readings == ["25 02:00 +0200", "25 02:30 +0200", "26 02:00 +0100"]


@pytest.mark.parametrize("minute", range(0, 60, 10))
def test_within_the_second_pass_of_the_hour_no_time_lies_in_the_past(minute: int) -> None:
    again = datetime(2026, 10, 25, 1, minute, tzinfo=UTC)
    assert again.astimezone(ZoneInfo(BERLIN)).fold == 1
    assert clock("30 2 * * *", again, 1) == ["26 02:30 +0100"]
    assert clock("*/20 * * * *", again, 1) == ["25 03:00 +0100"]


def test_half_an_hour_set_back_is_left_out_too() -> None:
    before = datetime(2026, 4, 4, 14, 31, tzinfo=UTC)
    readings = clock("*/15 * * * *", before, 4, "Australia/Lord_Howe")
    assert readings == ["05 01:45 +1100", "05 02:00 +1030", "05 02:15 +1030", "05 02:30 +1030"]


def test_29_february_waits_for_a_leap_year() -> None:
    years = [at.year for at in Cron("0 0 29 2 *", "UTC").following(FRIDAY, 3)]
    assert years == [2028, 2032, 2036]
    late = datetime(2096, 3, 1, tzinfo=UTC)
    assert Cron("0 0 29 2 *", "UTC").after(late).year == 2104


def test_words_stand_for_five_fields() -> None:
    for word, fields in NICKNAMES.items():
        assert Cron(word, "UTC").after(FRIDAY) == Cron(fields, "UTC").after(FRIDAY)
    assert spelled_out("@daily") == "0 0 * * *"


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 4,6 *"])
def test_what_never_falls_due_is_refused(expression: str) -> None:
    with pytest.raises(CronInvalid, match="never falls due"):
        Cron(expression, "UTC").after(FRIDAY)
    assert Cron(expression, "UTC").following(FRIDAY, 3) == []


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "needs 5 fields, not 0"),
        ("0 3 * *", "needs 5 fields, not 4"),
        ("0 3 * * * *", "needs 5 fields, not 6"),
        ("@reboot", "needs 5 fields, not 1"),
        ("60 * * * *", "'60' is no minute: write 0 to 59"),
        ("x * * * *", "'x' is no minute"),
        ("0 25 * * *", "'25' is no hour: write 0 to 23"),
        ("* * * 13 *", "'13' is no month"),
        ("* * * * 8", "not a day of the week"),
        ("* * * * sat-mon", "run backwards"),
        ("* * * * 1/0", "not a step"),
        ("* * * * 1/x", "not a step"),
        ("* * * * 1,", "not a day of the week"),
    ],
)
def test_what_is_no_cron_expression_is_refused(expression: str, why: str) -> None:
    with pytest.raises(CronInvalid, match=why) as refused:
        Cron(expression, "UTC")
    assert "0 3 * * 1-5" in refused.value.hint


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("Europe/Berlim", "did you mean Europe/Berlin?"),
        ("", "a name like"),
        ("../etc/passwd", "a name like"),
        ("Europe", ""),
        ("a\0b", "a name like"),
        ("x" * 5000, "a name like"),
    ],
)
def test_an_unknown_time_zone_is_refused(zone: str, hint: str) -> None:
    with pytest.raises(TimezoneUnknown, match="there is no time zone") as refused:
        Cron("0 3 * * *", zone)
    assert hint in refused.value.hint
