-- Drops the monthly partitions of these tables that ended by `before`. Rows of the default
-- partition stay, and so does a month of which a job is still there; the audit trail is nobody's. A
-- partition in use stays until the next time: waiting for its lock would block all writers.
CREATE OR REPLACE FUNCTION forge_drop_partitions(parents text[], before timestamptz) RETURNS integer
LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
DECLARE
    month text;
    dropped integer := 0;
BEGIN
    FOR month IN
        SELECT child.relname
        FROM pg_inherits
        JOIN pg_class AS child ON child.oid = pg_inherits.inhrelid
        WHERE pg_inherits.inhparent = ANY(parents::regclass[])
            AND child.relname ~ '_[0-9]{4}_[0-9]{2}$'
            AND to_date(right(child.relname, 7), 'YYYY_MM') + interval '1 month'
                <= before AT TIME ZONE 'UTC'
        ORDER BY right(child.relname, 7), child.relname
    LOOP
        CONTINUE WHEN month NOT LIKE 'event\_%' AND forge_has_jobs(month);
        BEGIN
            EXECUTE format('DROP TABLE IF EXISTS %I', month);
            dropped := dropped + 1;
        EXCEPTION WHEN lock_not_available THEN
            NULL;
        END;
    END LOOP;
    RETURN dropped;
END $$;
