"""Read the reporting views: all rows, of a span of time, of one owner, or grouped."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from psycopg import sql

from forge_schema.database.pool import Connection, DatabaseUser, Row
from forge_schema.model import quantities
from forge_schema.model.errors import ForgeError
from forge_schema.read.report_definitions import DAY, REPORTS, Report

PAGE = 1000
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


class ReportUnknown(ForgeError):
    """There is no report with this name."""


class ReportColumnUnknown(ForgeError):
    """The report cannot be grouped by this column, or has no time or owner."""


class SinceInvalid(ForgeError):
    """The start or the end of a report is neither an age nor a time."""


def moment(text: str, now: datetime) -> datetime:
    """Parse an age, a day or a time; without a time zone it is in UTC.

    Raises:
        SinceInvalid: it is none of them.
    """
    try:
        return quantities.moment(text, now)
    except ValueError as error:
        raise SinceInvalid(str(error), hint=quantities.MOMENTS_HINT) from None


def report(name: str) -> Report:
    """Return the definition of a report; `ReportUnknown` if there is no such report."""
    if name not in REPORTS:
        # `waits` is like a part of `queue_wait`.
        named = {part: whole for whole in REPORTS for part in (*whole.split("_"), whole)}
        close = get_close_matches(name, named, 1)
        near = f"did you mean {named[close[0]]!r}?" if close else ""
        hint = near or f"choose one of {', '.join(REPORTS)}"
        raise ReportUnknown(f"there is no report {name!r}", hint=hint)
    return REPORTS[name]


@cache
def described() -> Mapping[str, Any]:
    """Return what the columns of each reporting view mean, as the reference tells it."""
    text = (files("forge_schema.read") / "views.toml").read_text("utf-8")
    return tomllib.loads(text)


def meanings(name: str, columns: Sequence[str]) -> dict[tuple[str, ...], str]:
    """Return what columns of a report mean; some are told of together."""
    told = described()[name]["columns"]
    found = {
        tuple(one for one in names.split(", ") if one in columns): LINK.sub(r"\1", meaning)
        for names, meaning in told.items()
    }
    return {names: meaning for names, meaning in found.items() if names}


class Reports(DatabaseUser):
    """Reads reports; changes nothing. Statements use the planner's usual settings."""

    def rows(
        self,
        name: str,
        *,
        since: str | None = None,
        until: str | None = None,
        by: Sequence[str] = (),
        scope: list[str] | None = None,
        count: int = PAGE,
    ) -> list[Row]:
        """Return the rows of a report, newest first, or of its groups.

        Args:
            name: the report.
            since: how far back: an age such as `7d`, or a time. Days count as a whole.
            until: where it ends, in the same forms; that time, or day, is not part of it.
            by: the columns to group by; `REPORTS` has the measures of a group.
            scope: only these owners' rows, if the report has owners.
            count: maximum number of rows.

        Raises:
            ReportUnknown: there is no such report.
            ReportColumnUnknown: it cannot be grouped by this column, or has no time or owner.
            SinceInvalid: `since` or `until` is neither an age nor a time.
        """
        chosen = report(name)
        both = {"since": since, "until": until}
        given = {bound: text for bound, text in both.items() if text is not None}
        _check(name, chosen, by, given, scope)
        with self._database.reporting() as connection:
            bounds: dict[str, object] = {"scope": scope, "count": count}
            bounds |= {bound: _bound(connection, text, chosen) for bound, text in given.items()}
            _check_order(bounds, given)
            # Not prepared, so that the planner sees the bounds.
            cursor = connection.execute(_query(name, chosen, by, bounds), bounds, prepare=False)
            return cursor.fetchall()


def _check(
    name: str,
    chosen: Report,
    by: Sequence[str],
    given: Mapping[str, str],
    scope: list[str] | None,
) -> None:
    for column in by:
        if column not in chosen.groups:
            raise ReportColumnUnknown(
                f"the report {name} cannot be grouped by {column!r}",
                hint=f"group by one or more of {', '.join(chosen.groups)}",
            )
    if given and chosen.time is None:
        raise ReportColumnUnknown(
            f"the report {name} shows the current state",
            hint=f"leave out `{'` and `'.join(given)}`",
        )
    if scope is not None and not chosen.owned:
        raise ReportColumnUnknown(f"the report {name} is not divided by owner")


def _check_order(bounds: Mapping[str, Any], given: Mapping[str, str]) -> None:
    if "since" in bounds and "until" in bounds and bounds["since"] > bounds["until"]:
        raise SinceInvalid(
            f"it would end before it begins: since {given['since']} until {given['until']}",
            hint="exchange them",
        )


def _bound(connection: Connection, text: str, chosen: Report) -> object:
    (now,) = connection.execute("SELECT forge_now() AS now", prepare=False).fetchall()
    when: datetime = moment(text, now["now"])
    return when.astimezone(UTC).date() if chosen.time == DAY else when


def _query(name: str, chosen: Report, by: Sequence[str], bounds: dict[str, object]) -> sql.Composed:
    wanted: list[sql.Composable] = []
    if bounds["scope"] is not None:
        wanted.append(sql.SQL("owner = ANY(%(scope)s)"))
    for bound, compared in (("since", "{} >= %(since)s"), ("until", "{} < %(until)s")):
        if bound in bounds:
            wanted.append(sql.SQL(compared).format(sql.Identifier(chosen.time or "")))
    where = sql.SQL(" WHERE ") + sql.SQL(" AND ").join(wanted) if wanted else sql.SQL("")
    whole = _whole(name, chosen, bounded="since" in bounds)
    select, rest = _grouped(name, chosen, by) if by else whole
    return sql.SQL("").join([select, where, rest, sql.SQL(" LIMIT %(count)s")])


def _whole(name: str, chosen: Report, *, bounded: bool) -> tuple[sql.Composable, sql.Composable]:
    order = chosen.time if bounded else chosen.order or chosen.time
    # Of one day, the newest job first.
    ties = ", job_id DESC" if order == DAY and "job_id" in chosen.keys else ""
    ordered = sql.SQL(f" ORDER BY {order} DESC{ties}" if order else "")
    return sql.SQL("SELECT * FROM {}").format(sql.Identifier(name)), ordered


def _grouped(name: str, chosen: Report, by: Sequence[str]) -> tuple[sql.Composable, sql.Composable]:
    keys = [chosen.computed.get(column, column) for column in by]
    shown = [f"{key} AS {column}" for key, column in zip(keys, by, strict=True)]
    shown += [f"{made} AS {column}" for column, made in chosen.measures.items()]
    places = ", ".join(str(place) for place in range(1, len(by) + 1))
    # Safe: every part is ours, and `by` was checked against the report's keys.
    select = sql.SQL("SELECT {} FROM {}").format(
        sql.SQL(", ".join(shown)), sql.SQL(chosen.source or name)
    )
    return select, sql.SQL(f" GROUP BY {places} ORDER BY {places}")
