-- How many slots of a limit are free, counted up to `enough`. After a limit was lowered, more jobs
-- may run than it allows; those hold the slots above it.
CREATE OR REPLACE FUNCTION forge_free_slots(limited text, its_name text, most bigint, enough bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF EXISTS (
        SELECT FROM slot
        WHERE kind = limited AND name = its_name AND n > most AND job_id IS NOT NULL
    ) THEN
        RETURN (
            SELECT greatest(most - count(*), 0) FROM slot
            WHERE kind = limited AND name = its_name AND job_id IS NOT NULL
        );
    END IF;
    RETURN (
        SELECT count(*) FROM (
            SELECT FROM slot
            WHERE kind = limited AND name = its_name AND n <= most AND job_id IS NULL
            LIMIT enough
        ) AS free
    );
END $$;
