"""Migrates a database, and translates errors for the client."""

from collections.abc import Callable

import psycopg
from forge_schema.database import report_role
from forge_schema.database.current import HEAD
from forge_schema.database.migrate import upgrade
from forge_schema.database.pool import explained
from forge_schema.storage.probe import probe, require_fit

from forge_client.direct.database_url import checked_url
from forge_client.direct.translation import translated
from forge_client.errors import ClientError


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


def try_store(url: str, say: Callable[[str], None]) -> None:
    """Say what a store can do. One that does not answer may come later.

    Raises:
        ClientError: Forge cannot work with it.
    """
    try:
        with translated():
            found = probe(url)
    except ClientError as error:
        say(f"the store was not tried: {error.message}")
        return
    for one in found:
        hint = f" ({one.hint})" if one.hint else ""
        say(f"store: {one.capability}: {one.verdict.value}: {one.detail}{hint}")
    with translated():
        require_fit(url, found)


def has_report_role(url: str) -> bool:
    """Tell whether the role that reads the reports exists.

    Raises:
        ClientError: the database cannot be reached.
    """
    with translated(), psycopg.connect(checked_url(url)) as connection:
        return report_role.exists(connection)
