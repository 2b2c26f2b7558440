"""Fill an empty database with a queue from a dump.

It is held until the queue in it is complete, so nobody uses it too early. A note in it says so:
what was cut short is recognised and begun again.
"""

from pathlib import Path

from forge_schema.database import hold

from forge_client.direct import postgres_programs
from forge_client.direct.migration import migrate
from forge_client.errors import ClientError

NOTE = "forge is filling this database"
TABLES = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
ANEW = "DROP SCHEMA public CASCADE; CREATE SCHEMA public"


def begin(url: str) -> None:
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
        end(url)
        raise


def fill(url: str, dump: Path) -> None:
    """Load a dump, and upgrade the tables to this version.

    Raises:
        ClientError: one of them fails.
    """
    postgres_programs.load(hold.writing_url(url), dump)
    migrate(hold.writing_url(url))


def end(url: str) -> None:
    """Let everybody use the queue in it. May run twice."""
    hold.release(url)
    hold.set_note(url, "")
