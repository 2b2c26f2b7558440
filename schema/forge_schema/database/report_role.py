"""The role `forge_report`, which may read the reporting views and nothing else.

Roles are the whole server's: other databases on it may have made it already, or do so just now.
"""

from typing import Any

import psycopg
from psycopg import sql

from forge_schema.database.statements import views

ROLE = "forge_report"
# What a role has of its own counts only for itself; a login that is its member needs them too.
SETTINGS = {
    "default_transaction_read_only": "on",
    "statement_timeout": "60s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "5s",
}
ACCESS = """
    SELECT view.relname AS view, acl.grantee::regrole::text AS grantee, acl.is_grantable
    FROM pg_class AS view, aclexplode(view.relacl) AS acl
    WHERE view.relkind = 'v' AND view.relnamespace = 'public'::regnamespace
        AND view.relname = ANY(%s) AND acl.privilege_type = 'SELECT'
        AND acl.grantee <> view.relowner
"""

Grant = tuple[str, str, bool]
Cursor = psycopg.Cursor[Any]


def make(connection: psycopg.Connection[Any]) -> bool:
    """Make the role unless it is there; returns whether it is there now.

    It is not where this user may not make roles.
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
        # Another upgrade on this server was faster.
        return True
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True


def exists(connection: psycopg.Connection[Any]) -> bool:
    """Tell whether the role is there."""
    found = connection.execute("SELECT to_regrole(%s) IS NOT NULL", [f'"{ROLE}"']).fetchone()
    return bool(found and found[0])


def granted(cursor: Cursor) -> list[Grant]:
    """Return who may read which view: an admin's grants, which have to outlive the views."""
    cursor.execute(ACCESS, [views()])
    return [(view, grantee, again) for view, grantee, again in cursor.fetchall()]


def grant(cursor: Cursor, before: list[Grant]) -> None:
    """Let the role read every view, and those who might before the ones that they might."""
    if exists(cursor.connection):
        for view in views():
            _grant(cursor, view, sql.Identifier(ROLE), again=False)
    for view, grantee, again in before:
        # A role's name comes quoted where it must be; "-" is everybody.
        name = sql.SQL("PUBLIC" if grantee == "-" else grantee)
        _grant(cursor, view, name, again=again)


def _grant(cursor: Cursor, view: str, name: sql.Composable, *, again: bool) -> None:
    also = sql.SQL(" WITH GRANT OPTION" if again else "")
    cursor.execute(sql.SQL("GRANT SELECT ON {} TO {}{}").format(sql.Identifier(view), name, also))
