"""Queues by page, and the demand for the fleet compared with its supply."""

from forge_schema.database.pool import Database, Row, run

PAGE = 100
# Each of these shapes is compared with each worker.
SHAPES = 30


def queues(
    database: Database, *, owner: str | None = None, after: str = "", count: int = PAGE
) -> list[Row]:
    """Return the queues after a name; with an owner, only that owner's queues and numbers."""
    params = {"owner": owner, "after": after, "count": min(count, PAGE + 1)}
    with database.reporting() as connection:
        return run(connection, "page_queues", params)


def demand(database: Database, *, owner: str | None = None, count: int = SHAPES) -> list[Row]:
    """Return the demand for each shape in each queue, and how much of it the fleet can run."""
    params = {"owner": owner, "count": min(count, SHAPES)}
    with database.reporting() as connection:
        return run(connection, "page_demand", params)
