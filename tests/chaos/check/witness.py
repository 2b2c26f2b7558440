"""The witness: every grant, renewal and end of a lease, noted by the database in its own commit.

The tables keep of a lease what its end tells. What happened in between, until when it was renewed
and on whose connection, is kept here: by triggers that only a chaos run's database has.
"""

from __future__ import annotations

import psycopg

# A connection has a name if whoever opened it gave it one (`PGAPPNAME=<the worker's name>`).
# A renewal is by the lease's holder if the same transaction noted that its worker was seen.
DEFINITIONS = """
    CREATE SCHEMA IF NOT EXISTS chaos;
    CREATE TABLE IF NOT EXISTS chaos.change (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        at timestamptz NOT NULL,
        verb text NOT NULL,
        connection text NOT NULL,
        by_holder boolean NOT NULL,
        job_id bigint NOT NULL,
        rank smallint NOT NULL,
        token bigint NOT NULL,
        worker_id bigint NOT NULL,
        expires_at timestamptz NOT NULL
    );
    CREATE INDEX IF NOT EXISTS change_job ON chaos.change (job_id);
    CREATE OR REPLACE FUNCTION chaos.note() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    DECLARE one lease%ROWTYPE := CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    BEGIN
        INSERT INTO chaos.change (
            at, verb, connection, by_holder, job_id, rank, token, worker_id, expires_at
        )
        SELECT
            forge_now(),
            CASE TG_OP WHEN 'INSERT' THEN 'granted' WHEN 'UPDATE' THEN 'renewed' ELSE 'ended' END,
            current_setting('application_name'),
            EXISTS (
                SELECT FROM worker
                WHERE id = one.worker_id AND xmin = pg_current_xact_id()::xid
            ),
            one.job_id, one.rank, one.token, one.worker_id, one.expires_at;
        RETURN NULL;
    END
    $$;
    CREATE OR REPLACE TRIGGER chaos_noted AFTER INSERT OR DELETE OR UPDATE OF expires_at ON lease
    FOR EACH ROW EXECUTE FUNCTION chaos.note();
"""


def install(database_url: str) -> None:
    """Have a migrated database note what happens to leases from now on; a repeat is harmless."""
    with psycopg.connect(database_url) as connection:
        connection.execute(DEFINITIONS)
