-- Gives one of the tables that lack some their monthly partitions from the month of `since` to
-- `ahead` months after it; called until it returns 0, all of them. A table in use gets them the next
-- time: whoever waited long for it would hold up all readers. Where many rows would have to find
-- their months, the next upgrade of the database does that.
CREATE OR REPLACE FUNCTION forge_make_partitions(since timestamptz, ahead integer) RETURNS integer
LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
DECLARE
    parent text;
    made integer;
BEGIN
    FOREACH parent IN ARRAY ARRAY['attempt', 'event', 'metric', 'sample'] LOOP
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
