"""Migrates a database, and translates errors for the client."""

import psycopg
from forge_schema.database import report_role
from forge_schema.database.current import HEAD
from forge_schema.database.migrate import upgrade
from forge_schema.database.pool import explained

from forge_client.direct.database_url import checked_url
from forge_client.direct.translation import translated


def migrate(url: str) -> str:
    """Migrate the database and return its revision.

    Raises:
        ClientError: the database cannot be reached, or the migration fails.
    """
    with translated():
        try:
            upgrade(checked_url(url))
        except psycopg.OperationalError as error:
            raise explained(error, url) from error
    return HEAD


def has_report_role(url: str) -> bool:
    """Tell whether the role that reads the reports exists.

    Raises:
        ClientError: the database cannot be reached.
    """
    with translated(), psycopg.connect(checked_url(url)) as connection:
        return report_role.exists(connection)
