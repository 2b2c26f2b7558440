"""The reporting views against the same sums in Python, on a queue with a varied past."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.database.statements import views
from forge_schema.read.report_definitions import REPORTS, over_time
from forge_schema.read.reports import (
    ReportColumnUnknown,
    Reports,
    ReportUnknown,
    SinceInvalid,
    moment,
)
from support.past.report_sums import GROUPED, SINGLE, VIEWS, Sums, computed, difference, grouped
from support.past.varied import OWNERS, fill

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.queue.rig import Rig

ALL = 1_000_000
Row = dict[str, Any]
TIMED = [name for name, report in REPORTS.items() if report.time]
OWNED = [name for name, report in REPORTS.items() if report.owned]
# Each row is one stored thing, or what the queue is like now; other tests look at these.
NO_SUMS = {"attempt_history", "audit", "benchmark_results", "jobs", "queue_demand", "runs"}
NO_SUMS |= {"test_results"}


@pytest.fixture(scope="module")
def filled(shared_rig: Rig) -> Rig:
    fill(shared_rig)
    return shared_rig


@pytest.fixture(scope="module")
def reports(filled: Rig) -> Reports:
    return Reports(filled.database)


@pytest.fixture(scope="module")
def sums(filled: Rig) -> Sums:
    return Sums(filled.rows, filled.clock.now)


def same(found: Sequence[Row], wanted: Sequence[Row], keys: Sequence[str]) -> None:
    """Compare rows one by one."""
    assert wanted
    assert difference(found, wanted, keys) is None


def alike(found: Sequence[Row], wanted: Sequence[Row]) -> None:
    """Compare rows of one report."""
    if not wanted:
        assert found == []
        return
    exact = [name for name in wanted[0] if not any(isinstance(r[name], float) for r in wanted)]
    same(found, wanted, exact)


def columns(rig: Rig, name: str) -> list[str]:
    found = rig.rows(
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_schema = 'public' AND table_name = %s ORDER BY ordinal_position",
        name,
    )
    return [row["column_name"] for row in found]


def test_the_past_is_varied(filled: Rig, sums: Sums) -> None:
    reasons = {row["reason"] for row in sums.tables["attempt"]}
    assert reasons >= {"succeeded", "exit_code", "preempted", "drained", "worker_lost", "cancelled"}
    assert {row["day"] for row in sums.attempts()} >= {datetime(2031, 1, 2, tzinfo=UTC).date()}
    assert {row["owner"] for row in sums.attempts()} == set(OWNERS)
    assert {row["kind"] for row in sums.stuck()} == {
        "unclaimable", "unattended", "stalled", "expired",
    }  # fmt: skip
    assert {row["worker"] for row in sums.attempts()} >= {"spot", "big", "free"}
    assert any(0 < row["useful"] < 1 for row in sums.attempts())
    assert any(row["rank"] for row in sums.attempts())
    assert filled.count("lease") > 0


@pytest.mark.parametrize("name", VIEWS)
def test_each_view_is_what_python_makes_of_the_tables(
    filled: Rig, reports: Reports, sums: Sums, name: str
) -> None:
    wanted, keys = computed(sums, name, columns(filled, name))
    same(reports.rows(name, count=ALL), wanted, keys)


@pytest.mark.parametrize("name", SINGLE)
def test_each_view_of_single_things_has_every_one(
    filled: Rig, reports: Reports, sums: Sums, name: str
) -> None:
    wanted, keys = computed(sums, name, columns(filled, name))
    same(reports.rows(name, count=ALL), wanted, keys)


@pytest.mark.parametrize("name", GROUPED)
def test_groups_are_summed_anew_by_whichever_columns(
    reports: Reports, sums: Sums, name: str
) -> None:
    made = GROUPED[name][1]
    pieces = GROUPED[name][0](sums)
    for count in (1, 2):
        for by in combinations(REPORTS[name].keys, count):
            wanted = grouped(pieces, by, made)
            same(reports.rows(name, by=by, count=ALL), wanted, by)
    if "day" in REPORTS[name].keys:
        months = [{**piece, "month": f"{piece['day']:%Y-%m}"} for piece in pieces]
        wanted = grouped(months, ["month"], made)
        same(reports.rows(name, by=["month"], count=ALL), wanted, ["month"])


@pytest.mark.parametrize("name", TIMED)
def test_since_leaves_out_what_was_before(filled: Rig, reports: Reports, name: str) -> None:
    time = REPORTS[name].time or ""
    began = filled.clock.now - timedelta(days=1)
    bound = began.date() if time == "day" else began
    rows = reports.rows(name, count=ALL)
    wanted = [row for row in rows if row[time] >= bound]
    found = reports.rows(name, since="1d", count=ALL)
    alike(found, wanted)
    alike(reports.rows(name, since=began.isoformat(), count=ALL), wanted)
    assert [row[time] for row in found] == sorted((row[time] for row in found), reverse=True)
    alike(reports.rows(name, until="1d", count=ALL), [row for row in rows if row[time] < bound])
    assert reports.rows(name, since="1d", until="1d") == []


@pytest.mark.parametrize("name", OWNED)
def test_an_owner_sees_the_own_rows_whole_and_grouped(reports: Reports, name: str) -> None:
    rows = reports.rows(name, count=ALL)
    assert "owner" in REPORTS[name].keys
    own = reports.rows(name, scope=["bob"], count=ALL)
    alike(own, [row for row in rows if row["owner"] == "bob"])
    (group, *none) = reports.rows(name, scope=["bob"], by=["owner"]) or [{"owner": "bob"}]
    assert (group["owner"], none) == ("bob", [])


def test_a_job_that_is_not_due_has_not_been_let_wait(rig: Rig) -> None:
    rig.submit(delay_s=3600)
    reports = Reports(rig.database)
    assert reports.rows("sla") == []
    rig.clock.advance(3700)
    (row,) = reports.rows("sla")
    assert (row["jobs"], row["waiting"], row["started_1m"]) == (1, 1, 0)


def test_every_report_with_sums_is_computed_in_python_too() -> None:
    wanted = "name it in GROUPED or SINGLE in tests/support/past/report_sums.py"
    assert {*GROUPED, *SINGLE, *NO_SUMS} == set(REPORTS), wanted


def test_every_view_is_a_report_and_every_column_is_there(filled: Rig) -> None:
    assert sorted([*REPORTS, "job_status"]) == views()
    for name, report in REPORTS.items():
        there = {*columns(filled, name), "day"}
        assert {report.time or "day"} <= there
        assert {"owner"} & there == ({"owner"} if report.owned else set()) or name == "audit"
        if report.source is None:
            assert set(report.keys) <= there


def test_every_group_is_plain_json(reports: Reports) -> None:
    for name, report in REPORTS.items():
        for row in reports.rows(name, by=report.keys[:1]):
            kinds = {type(value).__name__ for value in row.values()}
            assert kinds <= {"str", "int", "float", "datetime", "date", "NoneType"}, (name, row)


def test_what_cannot_be_answered_is_refused(reports: Reports) -> None:
    with pytest.raises(ReportUnknown, match="no report 'job'"):
        reports.rows("job")
    with pytest.raises(ReportColumnUnknown, match="by 'median_s'") as caught:
        reports.rows("queue_wait", by=["owner", "median_s"])
    assert "queue, owner, shape_id, day" in caught.value.hint
    with pytest.raises(ReportColumnUnknown):
        reports.rows("cost", by=["owner; DROP TABLE job"])
    with pytest.raises(ReportColumnUnknown, match="shows the current state"):
        reports.rows("queue_demand", until="7d")
    with pytest.raises(ReportColumnUnknown, match="by owner"):
        reports.rows("audit", scope=["bob"])


NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("90m", NOW - timedelta(minutes=90)),
        ("7d", NOW - timedelta(days=7)),
        ("2 w", NOW - timedelta(days=14)),
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("today", datetime.combine(NOW.date(), time(), UTC)),
        (" yesterday", datetime.combine(NOW.date() - timedelta(days=1), time(), UTC)),
        ("2026-11-01T08:00+02:00", datetime(2026, 11, 1, 6, tzinfo=UTC)),
        ("2026-11-01T08:00:00Z", datetime(2026, 11, 1, 8, tzinfo=UTC)),
    ],
)
def test_a_time_to_begin_at_is_an_age_or_a_moment(said: str, meant: datetime) -> None:
    assert moment(said, NOW) == meant


@pytest.mark.parametrize(
    "said", ["", "7", "7y", "-7d", "tomorrow", "20261101", "999999w", "2026-13-01"]
)
def test_what_is_no_time_is_refused(said: str) -> None:
    with pytest.raises(SinceInvalid):
        moment(said, NOW)


def test_sums_over_time_have_days_and_months_without_rows() -> None:
    november = [date(2026, 11, day) for day in (29, 30)]
    december = {"day": date(2026, 12, 2)}
    rows: list[dict[str, Any]] = [{**december, "cost": None}, {**december, "cost": 2}]
    rows.append({"day": november[0], "cost": Decimal("0.5")})
    expected = {november[0]: 0.5, november[1]: 0, date(2026, 12, 1): 0, date(2026, 12, 2): 2}
    assert over_time(rows, "cost") == expected
    assert [*over_time(rows, "cost")] == [*expected]
    months = [{"month": month, "jobs": 3} for month in ("2027-01", "2026-11")]
    assert [*over_time(months, "jobs").items()] == [
        (date(2026, 11, 1), 3), (date(2026, 12, 1), 0), (date(2027, 1, 1), 3),
    ]  # fmt: skip
    without_days = [{"owner": owner, "cost": 1} for owner in ("ann", "bob")]
    for no_curve in ([], rows[:2], without_days):
        assert over_time(no_curve, "cost") == {}
