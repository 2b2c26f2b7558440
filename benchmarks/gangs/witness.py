"""The witness: what the tables do not keep, recorded by the database itself.

These are the drafts, and when each member of a run fetched its lease and had prepared.
"""

import psycopg

DEFINITIONS = """
    CREATE SCHEMA bench;
    CREATE TABLE bench.note (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        at timestamptz NOT NULL DEFAULT clock_timestamp(),
        what text NOT NULL,
        job_id bigint NOT NULL,
        worker_id bigint NOT NULL
    );
    CREATE FUNCTION bench.note() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE one record;
    BEGIN
        one := CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
        INSERT INTO bench.note (what, job_id, worker_id)
        VALUES (TG_ARGV[0], one.job_id, one.worker_id);
        RETURN NULL;
    END
    $$;
    CREATE TRIGGER drafted AFTER INSERT ON draft
        FOR EACH ROW EXECUTE FUNCTION bench.note('drafted');
    CREATE TRIGGER freed AFTER DELETE ON draft
        FOR EACH ROW EXECUTE FUNCTION bench.note('freed');
    CREATE TRIGGER fetched AFTER UPDATE OF phase ON lease
        FOR EACH ROW WHEN (NEW.nodes > 1 AND OLD.phase = 'claimed' AND NEW.phase <> 'claimed')
        EXECUTE FUNCTION bench.note('fetched');
    CREATE TRIGGER prepared AFTER UPDATE OF step ON lease
        FOR EACH ROW WHEN (OLD.step = 0 AND NEW.step > 0)
        EXECUTE FUNCTION bench.note('prepared');
"""


def install(url: str) -> None:
    """Have a migrated database record these from now on."""
    with psycopg.connect(url) as connection:
        connection.execute(DEFINITIONS)
