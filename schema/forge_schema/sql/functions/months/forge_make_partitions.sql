-- Gives one of the tables that lack them its monthly partitions from the month of `since` to
-- `ahead` months after it. Call it until it returns 0. A table in use gets them the next time:
-- waiting long for its lock would block all readers. If many rows must move to their months, the
-- next upgrade of the database does it.
CREATE OR REPLACE FUNCTION forge_make_partitions(since timestamptz, ahead integer) RETURNS integer
LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
DECLARE
    parent text;
    made integer;
BEGIN
    FOREACH parent IN ARRAY ARRAY['attempt_row', 'event', 'metric', 'sample'] LOOP
        CONTINUE WHEN pg_relation_size(parent || '_default') > 16 * 1024 * 1024;
        BEGIN
            made := forge_add_months(parent, since, ahead);
            IF made > 0 THEN
                RETURN made;
            END IF;
        EXCEPTION WHEN lock_not_available OR duplicate_table OR deadlock_detected THEN
            NULL;
        END;
    END LOOP;
    RETURN 0;
END $$;
