"""Return a database to the state in which it was guarded, instead of making another copy.

A copy costs 20 ms, and each connection to it must read the catalogue and plan every statement
anew, which takes longer than most tests. TRUNCATE would have them plan anew, too, since it gives a
table and its indexes new files: only tables that rows have filled are worth it. To the planner, one
of fewer than ten pages that was never vacuumed has ten, so deleted rows do not change a plan. After
a change to the catalogue, statistics or settings, the database must not be used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg
    from psycopg.rows import DictRow

# The trigger acts for whoever changes the schema, hence SECURITY DEFINER.
GUARD = """
    CREATE SCHEMA guarded;
    CREATE SCHEMA guard;
    CREATE TABLE guard.changed (tag text);
    CREATE TABLE guard.counted AS SELECT oid FROM pg_class WHERE relkind = 'r' AND reltuples >= 0;
    CREATE TABLE guard.counters AS
        SELECT seqrelid::regclass AS counter, seqstart AS first,
            pg_sequence_last_value(seqrelid) AS last
        FROM pg_sequence;
    CREATE FUNCTION guard.note() RETURNS event_trigger SECURITY DEFINER LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO guard.changed VALUES (tg_tag); END $$;

    CREATE FUNCTION guard.filled() RETURNS SETOF name LANGUAGE sql AS $$
        SELECT relname FROM pg_class
        WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_relation_size(oid) > 0
    $$;

    CREATE FUNCTION guard.empty() RETURNS void LANGUAGE plpgsql AS $$
        DECLARE
            one name;
            large text;
        BEGIN
            FOR one IN SELECT * FROM guard.filled() LOOP
                IF pg_relation_size(format('public.%I', one)) < 10 * 8192 THEN  -- pages
                    EXECUTE format('DELETE FROM public.%I', one);
                ELSE
                    large = concat_ws(', ', large, format('public.%I', one));
                END IF;
            END LOOP;
            IF large IS NOT NULL THEN
                EXECUTE 'TRUNCATE ' || large || ' CASCADE';
            END IF;
            FOR one IN SELECT relname FROM pg_class WHERE relnamespace = 'guarded'::regnamespace
            LOOP
                EXECUTE format('INSERT INTO public.%I SELECT * FROM guarded.%I', one, one);
            END LOOP;
            PERFORM setval(counter, coalesce(last, first), last IS NOT NULL) FROM guard.counters
            WHERE pg_sequence_last_value(counter) IS DISTINCT FROM last;
        END
    $$;

    DO $$
        DECLARE
            kept name;
        BEGIN
            FOR kept IN SELECT * FROM guard.filled() LOOP
                EXECUTE format('CREATE TABLE guarded.%I AS TABLE public.%I', kept, kept);
            END LOOP;
        END
    $$;

    CREATE EVENT TRIGGER guard_made ON ddl_command_end EXECUTE FUNCTION guard.note();
    CREATE EVENT TRIGGER guard_dropped ON sql_drop EXECUTE FUNCTION guard.note();
"""
CHANGED = """
    SELECT EXISTS (SELECT FROM guard.changed)
        OR EXISTS (
            SELECT FROM pg_class
            WHERE relkind = 'r' AND reltuples >= 0 AND oid NOT IN (SELECT oid FROM guard.counted)
        )
        OR EXISTS (
            SELECT FROM pg_db_role_setting JOIN pg_database ON pg_database.oid = setdatabase
            WHERE datname = current_database()
        ) AS changed
"""
# What is left of the test must not see the next one's rows. DROP DATABASE would end it, too.
ALONE = """
    SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> ALL (%s)
"""
# Without triggers: the audit trail refuses to be emptied.
EMPTY = """
    BEGIN; SET LOCAL session_replication_role = replica; SELECT guard.empty(); COMMIT
"""


def guard(connection: psycopg.Connection[DictRow]) -> None:
    """Remember the database's rows, and watch its schema from now on."""
    connection.execute(GUARD)


def emptied(connection: psycopg.Connection[DictRow], keeping: list[int]) -> bool:
    """Give the database the rows with which it was guarded, unless more than rows has changed.

    Args:
        connection: a superuser's, in autocommit mode.
        keeping: the processes of other connections that go on.
    """
    connection.execute(ALONE, [[connection.info.backend_pid, *keeping]])
    found: dict[str, Any] = connection.execute(CHANGED).fetchone() or {}
    if found["changed"]:
        return False
    connection.execute(EMPTY)
    return True
