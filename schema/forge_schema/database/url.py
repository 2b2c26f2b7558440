"""What a database's URL may be, before anything connects with it."""

import psycopg

SCHEMES = ("postgresql://", "postgres://")
EXAMPLE = "write postgresql://user:password@host:5432/database"


def url_fault(url: str) -> str:
    """Return what is wrong with a database's URL, without quoting it: it may hold a password."""
    if not url.startswith(SCHEMES) and ("://" in url or "=" not in url):
        return "it does not begin with postgresql://"
    try:
        psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        fault = str(error).strip().partition(': "')[0]
        return fault if url.startswith(SCHEMES) else "it is no connection string either"
    return ""
