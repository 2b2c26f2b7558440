"""The witness: every change of a lease or a schedule, recorded by the database as it commits.

The tables keep only the end of a lease, of a schedule only how it is now, and of old checkpoints
nothing. The witness adds how
long a lease was renewed and on whose connection, how a schedule was at any time, and how many
workers rested when one was suspected, with triggers that exist only in a chaos run's database.
"""

from __future__ import annotations

import psycopg

# A connection has a name if its client set one (`PGAPPNAME=<the worker's name>`).
# The end of a member of a run is stored in its lease, which is deleted when the run is settled.
# `nodes` are how many its run has; `spent` is what its job has used of its budgets: failures,
# losses and preemptions.
# A renewal comes from the holder if the same transaction recorded that its worker was seen.
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
        expires_at timestamptz NOT NULL,
        nodes smallint,
        spent bigint[]
    );
    CREATE INDEX IF NOT EXISTS change_job ON chaos.change (job_id);
    CREATE OR REPLACE FUNCTION chaos.note() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    DECLARE
        one lease%ROWTYPE := CASE TG_OP WHEN 'INSERT' THEN NEW ELSE OLD END;
        was_over boolean := TG_OP <> 'INSERT' AND OLD.over IS NOT NULL;
        verb text := CASE TG_OP
            WHEN 'INSERT' THEN 'granted' WHEN 'UPDATE' THEN 'renewed' ELSE 'ended'
        END;
    BEGIN
        IF was_over THEN
            verb := 'settled';
        ELSIF TG_OP = 'UPDATE' AND NEW.over IS NOT NULL THEN
            verb := 'ended';
        ELSIF TG_OP = 'UPDATE' THEN
            -- A member that claims again gets its lease with what is left of its time.
            IF NEW.nodes <> 1 AND NEW.expires_at = OLD.expires_at THEN
                RETURN NULL;
            END IF;
            one := NEW;
            -- The lease of a member of a gang lasts for a TTL from when its worker fetches it.
            IF NEW.nodes <> 1
                AND OLD.phase = 'claimed' AND NEW.phase <> 'claimed'
            THEN
                verb := 'fetched';
            END IF;
        END IF;
        INSERT INTO chaos.change (
            at, verb, connection, by_holder, job_id, rank, token, worker_id, expires_at, nodes,
            spent
        )
        SELECT
            forge_now(),
            verb,
            current_setting('application_name'),
            EXISTS (
                SELECT FROM worker
                WHERE id = one.worker_id AND xmin = pg_current_xact_id()::xid
            ),
            one.job_id, one.rank, one.token, one.worker_id, one.expires_at,
            one.nodes,
            ARRAY[one.failures, one.losses, one.preemptions];
        RETURN NULL;
    END
    $$;
    CREATE OR REPLACE TRIGGER chaos_noted AFTER INSERT OR DELETE OR UPDATE OF expires_at ON lease
    FOR EACH ROW EXECUTE FUNCTION chaos.note();
    CREATE TABLE IF NOT EXISTS chaos.schedule_change (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        at timestamptz NOT NULL,
        gone boolean NOT NULL,
        schedule_id integer NOT NULL,
        name text NOT NULL,
        paused boolean NOT NULL,
        next_at timestamptz NOT NULL,
        last_due_at timestamptz,
        last_job_id bigint
    );
    CREATE OR REPLACE FUNCTION chaos.note_schedule() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    DECLARE one schedule%ROWTYPE := CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    BEGIN
        INSERT INTO chaos.schedule_change (
            at, gone, schedule_id, name, paused, next_at, last_due_at, last_job_id
        )
        SELECT
            forge_now(), TG_OP = 'DELETE', one.id, one.name, one.paused, one.next_at,
            one.last_due_at, one.last_job_id;
        RETURN NULL;
    END
    $$;
    CREATE OR REPLACE TRIGGER chaos_noted AFTER INSERT OR DELETE OR UPDATE ON schedule
    FOR EACH ROW EXECUTE FUNCTION chaos.note_schedule();
    CREATE TABLE IF NOT EXISTS chaos.stored (
        job_id bigint NOT NULL,
        token bigint NOT NULL,
        attempt smallint NOT NULL,
        number integer NOT NULL,
        step bigint
    );
    CREATE INDEX IF NOT EXISTS stored_job ON chaos.stored (job_id);
    CREATE OR REPLACE FUNCTION chaos.note_stored() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    BEGIN
        INSERT INTO chaos.stored (job_id, token, attempt, number, step)
        SELECT
            NEW.job_id, NEW.token, NEW.attempt, NEW.number, (to_jsonb(NEW) ->> 'step')::bigint;
        RETURN NULL;
    END
    $$;
    CREATE OR REPLACE TRIGGER chaos_noted AFTER INSERT ON checkpoint
    FOR EACH ROW EXECUTE FUNCTION chaos.note_stored();
    CREATE TABLE IF NOT EXISTS chaos.suspicion (
        at timestamptz NOT NULL,
        resting bigint NOT NULL,
        there bigint NOT NULL
    );
    CREATE OR REPLACE FUNCTION chaos.note_suspicion() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    BEGIN
        INSERT INTO chaos.suspicion (at, resting, there)
        SELECT NEW.at, count(*) FILTER (WHERE forge_rests(worker)), count(*)
        FROM worker WHERE status NOT IN ('offline', 'connecting');
        RETURN NULL;
    END
    $$;
    CREATE OR REPLACE TRIGGER chaos_noted AFTER INSERT ON event
    FOR EACH ROW WHEN (NEW.action = 'suspected') EXECUTE FUNCTION chaos.note_suspicion();
"""


def install(database_url: str) -> None:
    """Have a migrated database record all later changes. Idempotent."""
    with psycopg.connect(database_url) as connection:
        connection.execute(DEFINITIONS)
