"""Months: made before the first row, without blocking anybody, and no row outside them."""

from __future__ import annotations

import re
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest
from forge_schema.database.migrate import upgrade
from forge_schema.database.pool import Database
from forge_schema.database.statements import PARAMETER, statement, statements
from forge_schema.model.states import Reason
from forge_schema.queue.queue import Queue
from forge_schema.read.audit import Audit
from forge_schema.sweeper.tick import Tick
from support.database.session import SESSION
from support.queue.rig import CENTURY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.queue.rig import Rig

PARENTS = ("attempt_row", "event", "metric", "sample")
MADE = """
    SELECT inhrelid::regclass::text FROM pg_inherits
    WHERE inhparent = ANY(ARRAY['attempt_row', 'event', 'metric', 'sample']::regclass[])
    ORDER BY 1
"""
MONTHS = """
    SELECT parent || to_char((now() AT TIME ZONE 'UTC') + make_interval(months => m), '_YYYY_MM')
    FROM unnest(%s::text[]) AS parent, generate_series(0, 2) AS m
"""
# As if no sweeper had run for months: all rows lie outside the months, some of which are missing.
FIRST_ROW = """
    INSERT INTO event (at, actor, action) VALUES (now(), 'user:ann', 'key_created');
    INSERT INTO metric (job_id, token, rank, number, at, attempt, values)
    SELECT 1, 1, 0, n, now() - make_interval(months => n), 1, '{}' FROM generate_series(0, 3) AS n;
    INSERT INTO attempt_row (job_id, attempt, rank, finished_at, token, nonce, worker_id, lane_id,
        ready_at, claimed_at, reason)
    SELECT n, 1, 0, now(), n, gen_random_uuid(), 1, 1, now(), now(), 'preempted'
    FROM generate_series(1, 1000) AS n;
"""

# Those whose plan cannot tell the type of a parameter by itself.
SPANS = ("offline", "reap")
# A list that is not empty; an update, or a lock of rows.
CHOOSES = re.compile(r":exec_pruning_steps\s+\(")
WAITS = re.compile(r":operation\s+2|\{LOCKROWS")
PLANS = "SET client_min_messages = log; SET debug_print_plan = on; SET debug_pretty_print = off"


def asked(url: str, query: str, *params: object) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query, params).fetchall()


def loose(url: str) -> list[int]:
    """Count the rows outside the months."""
    (counts,) = asked(
        url, "SELECT " + ", ".join(f"(SELECT count(*) FROM {p}_default)" for p in PARENTS)
    )
    return [int(str(count)) for count in counts]


def tell(database: Database) -> None:
    """Add an event."""
    Audit(database).note("user:ann", "login", {})


@contextmanager
def ticking(url: str) -> Iterator[Tick]:
    with Database(url) as database:
        yield Tick(Queue(database, actor="sweeper"), every=CENTURY)


def test_a_fresh_database_has_its_months_before_the_first_row(database_url: str) -> None:
    upgrade(database_url)  # the template may date from last month
    with ticking(database_url) as tick:
        before = asked(database_url, MADE)
        assert set(asked(database_url, MONTHS, list(PARENTS))) <= set(before)
        tell(tick._queue.database)
        tick.run()
    assert asked(database_url, MADE) == before
    assert loose(database_url) == [0, 0, 0, 0]
    assert asked(database_url, "SELECT tableoid::regclass::text FROM event") == asked(
        database_url, "SELECT to_char(now() AT TIME ZONE 'UTC', '\"event_\"YYYY_MM')"
    )


def test_a_tick_takes_no_lock_that_anybody_waits_for(database_url: str) -> None:
    with ticking(database_url) as tick, psycopg.connect(database_url) as other:
        tell(tick._queue.database)
        # It conflicts with every lock above ROW EXCLUSIVE.
        other.execute(f"LOCK TABLE {', '.join(PARENTS)} IN SHARE UPDATE EXCLUSIVE MODE")
        tick.run()
        for parent in PARENTS:
            asked(
                database_url,
                "SELECT set_config('lock_timeout', '1ms', false),"
                " forge_add_months(%s, forge_now(), 2)",
                parent,
            )


def test_a_reader_holds_up_no_tick_and_no_submit_while_months_are_missing(rig: Rig) -> None:
    rig.clock.set(datetime(2031, 6, 1, tzinfo=UTC))
    tell(rig.database)
    with psycopg.connect(rig.url) as reader:
        reader.execute("SELECT count(*) FROM event, attempt, metric, sample")
        rig.tick.run()
        rig.submit()
        tell(rig.database)
        assert rig.count("event_default") == 2
    rig.tick.run()
    assert loose(rig.url) == [0, 0, 0, 0]
    assert rig.count("event") == rig.count("event_2031_06") == 2


def test_at_the_turn_of_the_month_rows_lie_in_the_new_one(rig: Rig) -> None:
    rig.clock.set(datetime(2031, 1, 31, 23, 59, 59, tzinfo=UTC))
    rig.tick.run()
    made = rig.rows(MADE)
    tell(rig.database)
    rig.clock.advance(1)
    tell(rig.database)
    rig.tick.run()
    assert [rig.count(f"event_2031_{month:02}") for month in (1, 2, 3)] == [1, 1, 0]
    assert len(rig.rows(MADE)) == len(made) + len(PARENTS)
    rig.tick.run()
    assert len(rig.rows(MADE)) == len(made) + len(PARENTS)
    # A tick that makes them and loses the answer makes nothing the second time.
    rig.clock.advance(timedelta(days=28).total_seconds())
    rig.database.lose("make_partitions")
    rig.tick.run()
    assert len(rig.rows(MADE)) == len(made) + 2 * len(PARENTS)
    assert loose(rig.url) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("last", "months"),
    [
        (datetime(2031, 1, 31, tzinfo=UTC), ["2031_01", "2031_02", "2031_03"]),
        (datetime(2031, 12, 31, 23, 59, 59, tzinfo=UTC), ["2031_12", "2032_01", "2032_02"]),
        (datetime(2032, 2, 29, 12, tzinfo=UTC), ["2032_02", "2032_03", "2032_04"]),
    ],
)
def test_on_the_last_day_of_a_month_no_later_one_is_left_out(
    rig: Rig, last: datetime, months: list[str]
) -> None:
    rig.clock.set(last)
    tell(rig.database)
    rig.tick.run()
    made = {row["inhrelid"] for row in rig.rows(MADE)}
    assert {f"{parent}_{month}" for parent in PARENTS for month in months} <= made
    assert rig.count(f"event_{months[0]}") == rig.count("event") == 1
    assert loose(rig.url) == [0, 0, 0, 0]


def test_rows_of_months_without_sweepers_come_into_them(rig: Rig) -> None:
    for _ in range(4):
        rig.submit()
        rig.finish(rig.worker().claim_one(), Reason.IMAGE_MISSING)
        rig.clock.advance(timedelta(days=31).total_seconds())
    rig.tick.run()
    assert loose(rig.url) == [0, 0, 0, 0]
    assert [rig.count(f"attempt_row_2031_{month:02}") for month in (1, 2, 3, 4)] == [1, 1, 1, 1]


@pytest.mark.parametrize("ahead", [False, True], ids=["no months", "those to come"])
def test_an_upgrade_makes_the_months_that_rows_lack(
    empty_database_url: str, *, ahead: bool
) -> None:
    url = empty_database_url
    upgrade(url)
    with psycopg.connect(url, autocommit=True) as connection:
        for (part,) in connection.execute(MADE).fetchall():
            if not part.endswith("_default"):
                connection.execute(f"DROP TABLE {part}")
        if ahead:
            for parent in PARENTS:
                connection.execute(
                    "SELECT forge_add_month(%s, date_trunc('month', now() + interval '1 month'"
                    " * m)::date) FROM generate_series(1, 2) AS m",
                    [parent],
                )
        connection.execute(FIRST_ROW)
    assert loose(url) == [1000, 1, 4, 0]
    upgrade(url)
    upgrade(url)
    assert loose(url) == [0, 0, 0, 0]
    counted = asked(url, "SELECT (SELECT count(*) FROM attempt), (SELECT count(*) FROM event)")
    assert counted == [(1000, 1)]
    assert len(asked(url, "SELECT DISTINCT tableoid::regclass::text FROM metric")) == 4
    ((part,),) = asked(url, "SELECT DISTINCT tableoid::regclass::text FROM attempt_row")
    for change in ("DELETE FROM {}", "TRUNCATE {}"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            asked(url, change.format(part))


def planned(name: str) -> list[str]:
    """Return what has a statement planned."""
    text = statement(name)
    names = list(dict.fromkeys(PARAMETER.findall(text)))
    numbered = PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text)
    types = f"({', '.join(['interval'] * len(names))})" if name in SPANS else ""
    values = f"({', '.join(['NULL'] * len(names))})" if names else ""
    return [
        f"PREPARE looked_at {types} AS {numbered}",
        f"EXPLAIN EXECUTE looked_at{values}; DEALLOCATE looked_at",
    ]


def test_what_waits_for_a_row_does_not_choose_partitions_as_it_runs(rig: Rig) -> None:
    """With such a plan, Postgres 18.4 has crashed."""
    waiting = [name for name in statements() if "UPDATE" in statement(name) and name != "thin"]
    queries = {name: planned(name) for name in (*waiting, "thin:metric", "thin:sample")}
    queries["forge_suspect"] = ["SELECT forge_suspect('')"]
    told: list[str] = []
    found: list[str] = []
    with psycopg.connect(rig.url, autocommit=True, prepare_threshold=None) as connection:
        connection.execute(SESSION + PLANS)
        connection.add_notice_handler(lambda notice: told.append(notice.message_detail or ""))
        for name, asked_for in queries.items():
            for query in asked_for:
                connection.execute(query.encode())
            if any(CHOOSES.search(plan) and WAITS.search(plan) for plan in told):
                found.append(name)
            told.clear()
    assert found == []
