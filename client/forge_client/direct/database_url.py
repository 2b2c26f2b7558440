"""Validation of the database URL before anything connects with it."""

from forge_schema.database.url import EXAMPLE, SCHEMES, url_fault

from forge_client.errors import ClientError


def checked_url(url: str) -> str:
    """Return the URL if it is a Postgres URL.

    Raises:
        ClientError: it is not; the message omits the URL, which may contain a password.
    """
    bare = "" if url.startswith(SCHEMES) else "it does not begin with postgresql://"
    if fault := bare or url_fault(url):
        raise ClientError(
            f"this is not a database URL: {fault}", hint=EXAMPLE, code="database_url_invalid"
        )
    return url
