"""Validation of the database URL before anything connects with it."""

import psycopg

from forge_client.errors import ClientError

SCHEMES = ("postgresql://", "postgres://")


def checked_url(url: str) -> str:
    """Return the URL if it is a Postgres URL.

    Raises:
        ClientError: it is not; the message omits the URL, which may contain a password.
    """
    if not url.startswith(SCHEMES):
        raise _wrong("it does not begin with postgresql://")
    try:
        psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise _wrong(str(error).strip()) from error
    return url


def _wrong(what: str) -> ClientError:
    return ClientError(
        f"this is not a database URL: {what}",
        hint="write postgresql://user:password@host:5432/database",
        code="database_url_invalid",
    )
