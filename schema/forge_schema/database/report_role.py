"""The role `forge_report`, which may read the reporting views and nothing else.

Roles belong to the whole server: another database on it may have created the role already, or may
be creating it now.
"""

from typing import Any

import psycopg
from psycopg import sql

from forge_schema.database.statements import views

ROLE = "forge_report"
# A role's settings are not inherited: a login that is a member needs them too.
SETTINGS = {
    "default_transaction_read_only": "on",
    "statement_timeout": "60s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "5s",
}
ACCESS = """
    SELECT view.relname AS view, acl.grantee::regrole::text AS grantee, acl.is_grantable
    FROM pg_class AS view, aclexplode(view.relacl) AS acl
    WHERE view.relkind = 'v'
        AND view.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('job'))
        AND view.relname = ANY(%s) AND acl.privilege_type = 'SELECT'
        AND acl.grantee <> view.relowner
"""

Grant = tuple[str, str, bool]
Cursor = psycopg.Cursor[Any]


def make(connection: psycopg.Connection[Any]) -> bool:
    """Create the role if it is missing; return whether it exists now.

    It does not if this user may not create roles.
    """
    with connection.transaction():
        if exists(connection):
            return True
    try:
        with connection.transaction():
            connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(ROLE)))
            for name, value in SETTINGS.items():
                connection.execute(
                    sql.SQL("ALTER ROLE {} SET {} = {}").format(
                        sql.Identifier(ROLE), sql.Identifier(name), sql.Literal(value)
                    )
                )
    except (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
        # Another upgrade on this server has just created it.
        return True
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True


def exists(connection: psycopg.Connection[Any]) -> bool:
    """Tell whether the role exists."""
    row = connection.execute("SELECT to_regrole(%s) IS NOT NULL", [f'"{ROLE}"']).fetchone()
    return bool(row and row[0])


def granted(cursor: Cursor) -> list[Grant]:
    """Return an admin's grants on the views, to restore them when the views are replaced."""
    cursor.execute(ACCESS, [views()])
    return [(view, grantee, again) for view, grantee, again in cursor.fetchall()]


def grant(cursor: Cursor, before: list[Grant]) -> None:
    """Let the role read every view, and restore the grants that there were before."""
    if exists(cursor.connection):
        for view in views():
            _grant(cursor, view, sql.Identifier(ROLE), again=False)
    for view, grantee, again in before:
        # A role's name is quoted already where necessary; "-" is PUBLIC.
        name = sql.SQL("PUBLIC" if grantee == "-" else grantee)
        _grant(cursor, view, name, again=again)


def _grant(cursor: Cursor, view: str, name: sql.Composable, *, again: bool) -> None:
    also = sql.SQL(" WITH GRANT OPTION" if again else "")
    cursor.execute(sql.SQL("GRANT SELECT ON {} TO {}{}").format(sql.Identifier(view), name, also))
