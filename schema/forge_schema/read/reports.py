"""Reads the reporting views: whole, since a time, of one owner, or grouped."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from psycopg import sql

from forge_schema.database.pool import Connection, Database, Row
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import span
from forge_schema.read.report import REPORTS, Report

PAGE = 1000


class ReportUnknown(ForgeError):
    """There is no report of this name."""

    code = "report_unknown"


class ReportColumnUnknown(ForgeError):
    """A report cannot be grouped by this, or bounded by time."""

    code = "report_column_unknown"


class SinceInvalid(ForgeError):
    """A report cannot begin there: it is neither an age nor a time."""

    code = "since_invalid"


def moment(text: str, now: datetime) -> datetime:
    """Return the point in time that a text names; one without a zone is in UTC.

    Raises:
        SinceInvalid: it is neither an age nor a time.
    """
    said = text.strip()
    try:
        if "-" not in said[1:]:
            return now - timedelta(seconds=span(said))
        when = datetime.fromisoformat(said)
    except (ValueError, OverflowError):
        raise SinceInvalid(
            f"{text!r} is no time to begin at",
            hint="write 90m, 12h, 7d, 4w, or a day as 2026-11-01",
        ) from None
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)


def report(name: str) -> Report:
    """Return what is known of a report.

    Raises:
        ReportUnknown: there is no such report.
    """
    if name not in REPORTS:
        raise ReportUnknown(f"there is no report {name!r}", hint=f"one of {', '.join(REPORTS)}")
    return REPORTS[name]


class Reports:
    """Reads; nothing here changes a row. Statements are planned as usual."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def rows(
        self,
        name: str,
        *,
        since: str | None = None,
        by: Sequence[str] = (),
        owner: str | None = None,
        count: int = PAGE,
    ) -> list[Row]:
        """Return the rows of a report, the newest first, or of its groups.

        Args:
            name: the report.
            since: how far back: an age such as `7d`, or a time; of days, whole ones.
            by: the columns to group by; what a group shows is told by `REPORTS`.
            owner: only this owner's rows, of a report that has them.
            count: how many at most.

        Raises:
            ReportUnknown: there is no such report.
            ReportColumnUnknown: it cannot be grouped by that, or has no time or no owner.
            SinceInvalid: `since` is no time.
        """
        chosen = report(name)
        _check(name, chosen, by, since, owner)
        with self._database.reporting() as connection:
            bounds: dict[str, object] = {"owner": owner, "count": count}
            if since is not None:
                bounds["since"] = _since(connection, since, chosen)
            # Unprepared, it is planned for the very bounds that it has.
            cursor = connection.execute(_query(name, chosen, by, bounds), bounds, prepare=False)
            return cursor.fetchall()


def _check(
    name: str, chosen: Report, by: Sequence[str], since: str | None, owner: str | None
) -> None:
    for column in by:
        if column not in chosen.keys:
            raise ReportColumnUnknown(
                f"the report {name} cannot be grouped by {column!r}",
                hint=f"one or more of {', '.join(chosen.keys)}",
            )
    if since is not None and chosen.time is None:
        raise ReportColumnUnknown(f"the report {name} tells of now", hint="leave since out")
    if owner is not None and not chosen.owned:
        raise ReportColumnUnknown(f"the report {name} is not told by owner")


def _since(connection: Connection, since: str, chosen: Report) -> object:
    (now,) = connection.execute("SELECT forge_now() AS now", prepare=False).fetchall()
    began: datetime = moment(since, now["now"])
    return began.astimezone(UTC).date() if chosen.time == "day" else began


def _query(name: str, chosen: Report, by: Sequence[str], bounds: dict[str, object]) -> sql.Composed:
    wanted: list[sql.Composable] = []
    if bounds["owner"] is not None:
        wanted.append(sql.SQL("owner = %(owner)s"))
    if "since" in bounds:
        wanted.append(sql.SQL("{} >= %(since)s").format(sql.Identifier(chosen.time or "")))
    where = sql.SQL(" WHERE ") + sql.SQL(" AND ").join(wanted) if wanted else sql.SQL("")
    whole = _whole(name, chosen, bounded="since" in bounds)
    select, rest = _grouped(name, chosen, by) if by else whole
    return sql.SQL("").join([select, where, rest, sql.SQL(" LIMIT %(count)s")])


def _whole(name: str, chosen: Report, *, bounded: bool) -> tuple[sql.Composable, sql.Composable]:
    order = chosen.time if bounded else chosen.order or chosen.time
    ordered = sql.SQL(f" ORDER BY {order} DESC" if order else "")
    return sql.SQL("SELECT * FROM {}").format(sql.Identifier(name)), ordered


def _grouped(name: str, chosen: Report, by: Sequence[str]) -> tuple[sql.Composable, sql.Composable]:
    keys = [chosen.day if column == "day" else column for column in by]
    shown = [f"{key} AS {column}" for key, column in zip(keys, by, strict=True)]
    shown += [f"{made} AS {column}" for column, made in chosen.measures.items()]
    places = ", ".join(str(place) for place in range(1, len(by) + 1))
    # Of our own words alone: `by` was held against the report's keys.
    select = sql.SQL("SELECT {} FROM {}").format(
        sql.SQL(", ".join(shown)), sql.SQL(chosen.source or name)
    )
    return select, sql.SQL(f" GROUP BY {places} ORDER BY {places}")
