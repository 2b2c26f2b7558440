"""Alembic's entry point: one transaction, one migrator at a time; replaces functions and views.

All locks are taken first, so that no request and the migration wait for each other. Partitioned
tables get their monthly partitions before the first row, and grants on the views are
restored. Then constraints that a revision added as NOT VALID are checked while others read and
write. A mark of the complete upgrade is written last.
"""

from typing import Any

from alembic import context
from forge_schema.database import report_role
from forge_schema.database.connections import UPGRADE
from forge_schema.database.current import HEAD, MONTHS, mark, revision_of
from forge_schema.database.migrate import engine, lock_all, take
from forge_schema.database.statements import definitions, statement, views
from sqlalchemy import Connection, text

MIGRATION_LOCK = 0x666F726765  # "forge"


def include_name(name: str | None, kind: str, parents: Any) -> bool:  # noqa: ANN401 - Alembic's type
    """Skip partitions, which come and go with the months."""
    del parents
    return kind != "table" or metadata is None or name in metadata.tables


def unlimited(connection: Connection) -> None:
    """Lift this transaction's limits: behind a pooler, they are stored on the role."""
    driver: Any = connection.connection.driver_connection
    driver.execute(UPGRADE, prepare=False)


def migrate(connection: Connection) -> bool:
    """Run the revisions, then put the current functions and views in place.

    Returns:
        Whether the newest revision was reached; only that one has the views.
    """
    unlimited(connection)
    connection.execute(text(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"))
    connection.execute(text("SET LOCAL check_function_bodies = off"))
    driver: Any = connection.connection.driver_connection
    cursor = driver.cursor()
    readers = report_role.granted(cursor)
    take(connection, lambda: make_room(connection, changes=revision_of(driver) != HEAD))
    context.configure(
        connection=connection,
        target_metadata=metadata,
        include_name=include_name,
        compare_server_default=True,
    )
    context.run_migrations()
    # Directly to the driver: SQLAlchemy would read a % as a parameter.
    for sql in definitions("functions"):
        cursor.execute(sql)
    # They read tables that earlier revisions lack.
    if newest := context.get_context().get_current_revision() == HEAD:
        for sql in definitions("views"):
            cursor.execute(sql)
        report_role.grant(cursor, readers)
        # Locked since the beginning, or made by a revision just now.
        cursor.execute(statement("make_slots"))
    cursor.execute(MONTHS)
    cursor.close()
    return newest


def make_room(connection: Connection, *, changes: bool) -> None:
    """Lock what a migration changes, and drop the views."""
    if changes:
        lock_all(connection)
    if connection.scalar(text("SELECT to_regclass('slot')")):
        connection.execute(text(statement("lock_slots")))
    # In one statement, since some views read others.
    connection.execute(text(f"DROP VIEW IF EXISTS {', '.join(views())}"))


def validate(connection: Connection) -> None:
    """Check existing rows against constraints that were added as NOT VALID."""
    unlimited(connection)
    rows = connection.execute(
        text(
            "SELECT conrelid::regclass::text, quote_ident(conname) FROM pg_constraint"
            " WHERE NOT convalidated AND connamespace ="
            " (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('job'))"
        )
    )
    for table, name in rows.all():
        connection.execute(text(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}"))


metadata = context.config.attributes["metadata"]
database = engine(context.config.attributes["url"])
with database.begin() as connection:
    newest = migrate(connection)
with database.begin() as connection:
    validate(connection)
if newest:
    with database.begin() as connection:
        connection.execute(text(mark()))
database.dispose()
