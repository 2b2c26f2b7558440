"""Old measurements are thinned out by the same rule, whoever sweeps, and when."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from forge_schema.model.attempt_records import MetricRecord
from forge_schema.sweeper import retention as module
from forge_schema.sweeper.retention import Ageing, Ages
from support.at_once import at_once
from support.database.clock import START
from support.database.databases import holding
from support.queue.named_records import NamedRecords

if TYPE_CHECKING:
    from support.queue.rig import Rig

    # A job, a token, a rank, a number, and when it was kept.
    Row = tuple[int, int, int, int, datetime]

ORIGIN = datetime(2000, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
TABLES = ("metric", "sample")
# With this schema on its path, a statement that has begun waits for a lock before it does anything.
LATE = """
    CREATE SCHEMA late;
    CREATE FUNCTION late.date_bin(interval, timestamptz, timestamptz) RETURNS timestamptz
    LANGUAGE plpgsql VOLATILE AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock(1);
        RETURN pg_catalog.date_bin($1, $2, $3);
    END $$;
"""
UNHURRIED = """
    SET LOCAL search_path = late, pg_catalog, public;
    SET LOCAL lock_timeout = 0;
    SET LOCAL idle_in_transaction_session_timeout = 0
"""


def written() -> list[Row]:
    """Return rows of eleven days: two ranks, an attempt after them, one that wrote once."""
    rows: list[Row] = []
    for job, token, rank, begin, beat in ((91, 5, 0, 0, 7), (91, 5, 1, 3, 31), (91, 6, 0, 5, 1000)):
        # Some stretches that are dense, some lines that lie alone, and two at one time.
        moments = [begin + day * 86_400 + n * beat for day in range(11) for n in range(14)]
        moments += [begin + 3600 * hour for hour in range(0, 260, 37)] + [begin, begin]
        for number, second in enumerate(sorted(moments)):
            rows.append((job, token, rank, number, START + timedelta(seconds=second)))
    rows.append((92, 9, 0, 0, START + timedelta(seconds=12)))
    return rows


def staying(rows: list[Row], now: datetime, ages: Ages) -> set[Row]:
    """Return what the rule leaves of the rows, looking at each by itself."""
    kept: set[Row] = set()
    for _, each in groupby(sorted(rows), key=lambda row: row[:3]):
        series = list(each)
        kept |= {series[0], series[-1]}
        kept |= {row for row in series if stays(row, series, now, ages)}
    return kept


def stays(row: Row, series: list[Row], now: datetime, ages: Ages) -> bool:
    for width, age in ((module.MINUTE, ages.minute), (module.TEN_MINUTES, ages.ten_minutes)):
        begins = row[4] - (row[4] - ORIGIN) % width
        beside = [other for other in series if begins <= other[4] < begins + width]
        if age and begins + width <= now - age and row != beside[0]:
            return False
    return True


def keep(rig: Rig, rows: list[Row]) -> None:
    with psycopg.connect(rig.url, autocommit=True) as connection:
        for table in TABLES:
            connection.cursor().executemany(
                f"INSERT INTO {table} (job_id, token, rank, number, at, attempt, values)"
                " VALUES (%s, %s, %s, %s, %s, 1, '{}')",
                rows,
            )


def left(rig: Rig, table: str) -> set[Row]:
    rows = rig.rows(f"SELECT job_id, token, rank, number, at FROM {table}")
    return {(r["job_id"], r["token"], r["rank"], r["number"], r["at"]) for r in rows}


def ageing(rig: Rig, ages: Ages | None = None) -> Ageing:
    """Return one without a time limit."""
    return Ageing(rig.database, ages, clock=lambda: 0.0)


def test_what_stays_is_what_the_rule_says(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, ages = written(), Ages()
    keep(rig, rows)
    rig.clock.set(START + timedelta(hours=20))
    assert ageing(rig).thin() == 0
    counts = [len(rows)]
    for days, batch in ((4.3, 10_000), (10.0, 5), (20.0, 10_000)):
        monkeypatch.setattr(module, "ROWS", batch)
        rig.clock.set(START + days * DAY)
        # The second one finds nothing, or continues where the first one is.
        at_once(ageing(rig).thin, ageing(rig).thin)
        ageing(rig).thin()
        expected = staying(rows, rig.clock.now, ages)
        assert [left(rig, table) == expected for table in TABLES] == [True, True]
        assert ageing(rig).thin() == 0
        counts.append(len(expected))
    # Each of the ages removed something.
    assert counts == sorted(set(counts), reverse=True)


def test_each_age_has_a_setting_of_its_own(rig: Rig) -> None:
    rows = [row for row in written() if row[4] < START + DAY]
    keep(rig, rows)
    rig.clock.set(START + 30 * DAY)
    assert ageing(rig, Ages(timedelta(0), timedelta(0))).thin() == 0
    ages = Ages(timedelta(0), timedelta(days=2))
    ageing(rig, ages).thin()
    assert left(rig, "sample") == staying(rows, rig.clock.now, ages) != set(rows)


def test_one_that_began_before_another_ended_does_no_harm(rig: Rig) -> None:
    """Postgres 18 crashed when the second one looked again at the row that the first changed."""
    rows, ages = written(), Ages(ten_minutes=timedelta(0))
    keep(rig, rows)
    rig.clock.set(START + 20 * DAY)
    rig.rows(LATE)
    params: dict[str, Any] = {"width_s": 60, "age": ages.minute, "count": 10_000}
    with holding(rig.url) as late, ThreadPoolExecutor(1) as threads:
        with late.transaction() as connection:
            connection.execute(UNHURRIED)
        rig.rows("SELECT pg_advisory_lock(1)")
        told = threads.submit(late.row, "thin:metric", **params)
        rig.wait_until_blocked()
        assert rig.database.row("thin:metric", **params) != {"gone": 0}
        rig.rows("SELECT pg_advisory_unlock(1)")
        assert told.result(timeout=120) == {"gone": 0}
    ageing(rig, ages).thin()
    assert left(rig, "metric") == staying(rows, rig.clock.now, ages)


def test_nobody_waits_for_anybody(rig: Rig) -> None:
    keep(rig, [row for row in written() if row[4] < START + timedelta(minutes=9)])
    rig.clock.set(START + 40 * DAY)
    job = rig.submit()
    grant = rig.worker().claim_one()
    params: dict[str, Any] = {"width_s": 60, "age": DAY, "count": 100}
    with holding(rig.url) as other:
        row = other.row("thin:metric", **params)
        assert row is not None
        assert row["gone"] > 0
        # While one thins out, a second one does nothing, and a worker can write.
        assert rig.database.row("thin:metric", **params) is None
        assert rig.records.add_metrics(grant.fence, [MetricRecord(0, None, {})])
    with rig.uncommitted() as writing:
        NamedRecords(writing.database).add_metrics(grant.fence, [MetricRecord(1, None, {})])
        assert ageing(rig).thin() > 0
    assert rig.row("SELECT count(*) FROM metric WHERE job_id = %s", job)["count"] == 2
