"""Queues page by page, and what is wanted of the fleet against what it has."""

from forge_schema.database.pool import Database, Row, run

PAGE = 100
# A fit is computed for each of these shapes and each worker.
SHAPES = 30


def queues(
    database: Database, *, owner: str | None = None, after: str = "", count: int = PAGE
) -> list[Row]:
    """Return the queues after a name; with an owner, those used by and the numbers of that one."""
    params = {"owner": owner, "after": after, "count": min(count, PAGE + 1)}
    with database.reporting() as connection:
        return run(connection, "page_queues", params)


def demand(database: Database, *, owner: str | None = None, count: int = SHAPES) -> list[Row]:
    """Return what is wanted of each shape in each queue, and how much of it there is room for."""
    params = {"owner": owner, "count": min(count, SHAPES)}
    with database.reporting() as connection:
        return run(connection, "page_demand", params)
