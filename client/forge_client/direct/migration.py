"""Migrates a database, and fills an empty one with a queue from a dump.

An empty one is held until the queue in it is complete, so nobody uses it too early. A note in it
says so: what was cut short is recognised and begun again.
"""

from collections.abc import Callable
from pathlib import Path

import psycopg
from forge_schema.database import hold, report_role
from forge_schema.database.current import HEAD
from forge_schema.database.migrate import upgrade
from forge_schema.database.pool import explained
from forge_schema.storage.probe import probe, require_fit

from forge_client.direct import checked_url, postgres_programs, translated
from forge_client.errors import ClientError

NOTE = "forge is filling this database"
TABLES = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
ANEW = "DROP SCHEMA public CASCADE; CREATE SCHEMA public"


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
            findings = probe(url)
    except ClientError as error:
        say(f"the store was not tried: {error.message}")
        return
    for finding in findings:
        hint = f" ({finding.hint})" if finding.hint else ""
        say(f"store: {finding.capability}: {finding.verdict.value}: {finding.detail}{hint}")
    with translated():
        require_fit(url, findings)


def has_report_role(url: str) -> bool:
    """Tell whether the role that reads the reports exists.

    Raises:
        ClientError: the database cannot be reached.
    """
    with translated(), psycopg.connect(checked_url(url)) as connection:
        return report_role.exists(connection)


def begin_filling(url: str) -> None:
    """Hold an empty database. One that an earlier call left unfinished is emptied.

    Raises:
        ClientError: it has tables.
    """
    unfinished = hold.is_held(url) and hold.note(url) == NOTE
    with hold.writing(url) as connection:
        if unfinished:
            connection.execute(ANEW)
        elif connection.execute(TABLES).fetchone() != (0,):
            place = f"{connection.info.host}/{connection.info.dbname}"
            raise ClientError(
                f"the database {place} is not empty",
                hint="create a new one with `createdb`, and name that in the URL; that of a"
                " `forge up` has its tables from the start, and takes no other queue",
                code="database_not_empty",
            )
    # Before the hold: a database that is held without a note is somebody else's.
    hold.set_note(url, NOTE)
    hold.hold(url)


def rehearse(url: str, dump: Path) -> None:
    """Try whether the server takes a dump's tables; the database is as empty as before.

    Raises:
        ClientError: it does not.
    """
    try:
        postgres_programs.load(hold.writing_url(url), dump, rehearsal=True)
    except BaseException:
        end_filling(url)
        raise


def fill(url: str, dump: Path) -> None:
    """Load a dump, and upgrade the tables to this version; `ClientError` if one of them fails."""
    postgres_programs.load(hold.writing_url(url), dump)
    migrate(hold.writing_url(url))


def end_filling(url: str) -> None:
    """Let everybody use the queue in it. May run twice."""
    hold.release(url)
    hold.set_note(url, "")
