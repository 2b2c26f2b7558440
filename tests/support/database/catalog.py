"""The contents of a database according to its catalog, to compare two databases."""

from __future__ import annotations

from typing import Any

import psycopg
from forge_schema.database.tables import metadata

OURS = f"ARRAY[{', '.join(repr(name) for name in metadata.tables)}]::text[]"

# Not-null constraints are rows of pg_constraint only since Postgres 18; columns always show them.
QUERIES = {
    "columns": f"""
        SELECT table_name, column_name, data_type, udt_name, is_nullable, column_default,
            is_identity
        FROM information_schema.columns
        WHERE table_schema = 'public' AND table_name = ANY({OURS})
        ORDER BY table_name, column_name
    """,
    "constraints": f"""
        SELECT conrelid::regclass::text, conname, contype, pg_get_constraintdef(oid)
        FROM pg_constraint
        WHERE conrelid::regclass::text = ANY({OURS}) AND contype <> 'n'
        ORDER BY 1, 2
    """,
    "indexes": f"""
        SELECT tablename, indexname, indexdef FROM pg_indexes
        WHERE schemaname = 'public' AND tablename = ANY({OURS})
        ORDER BY 1, 2
    """,
    "storage": f"""
        SELECT oid::regclass::text, relkind, pg_get_partkeydef(oid),
            ARRAY(SELECT unnest(reloptions) ORDER BY 1)
        FROM pg_class WHERE oid::regclass::text = ANY({OURS})
        ORDER BY 1
    """,
    "sequences": """
        SELECT sequencename, data_type::text, increment_by, cache_size FROM pg_sequences
        WHERE schemaname = 'public' ORDER BY 1
    """,
}
# Objects that migrations create and the models do not describe. Monthly partitions are excluded,
# since they change with the calendar, and copies of their triggers, which Postgres 14 hides.
MADE = {
    "triggers": """
        SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) FROM pg_trigger
        WHERE NOT tgisinternal AND tgparentid = 0
        ORDER BY 1, 2
    """,
    "functions": """
        SELECT proname, pg_get_functiondef(oid) FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace ORDER BY 1
    """,
    "views": """
        SELECT table_name, column_name, data_type FROM information_schema.columns
        WHERE table_schema = 'public' AND table_name IN (
            SELECT viewname FROM pg_views WHERE schemaname = 'public'
        )
        ORDER BY table_name, column_name
    """,
    "partitions": """
        SELECT inhparent::regclass::text, inhrelid::regclass::text FROM pg_inherits
        WHERE inhparent::regclass::text NOT LIKE '%key%'
            AND inhrelid::regclass::text !~ '_[0-9]{4}_[0-9]{2}$'
        ORDER BY 1, 2
    """,
}


def rows(url: str, what: str) -> list[tuple[Any, ...]]:
    """Return the rows of a catalog query."""
    with psycopg.connect(url) as connection:
        return connection.execute({**QUERIES, **MADE}[what]).fetchall()


def everything(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of all catalog queries."""
    return {what: rows(url, what) for what in (*QUERIES, *MADE)}


def is_no_partition(name: str | None, kind: str, parents: object) -> bool:
    """Exclude partitions, which come and go with the months, and Alembic's own table."""
    del parents
    return kind != "table" or name in metadata.tables
