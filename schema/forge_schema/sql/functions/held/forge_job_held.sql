-- Looks at jobs that were held just now: what they wait for may have happened already. If not, it
-- cannot happen before this transaction ends, and whatever happens later finds them.
CREATE OR REPLACE FUNCTION forge_job_held() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    waiting bigint[] := ARRAY(SELECT job_id FROM added);
BEGIN
    IF waiting <> '{}' THEN
        PERFORM forge_lock_places(ARRAY(
            SELECT DISTINCT edge.needs_id
            FROM unnest(waiting) AS held_job (id)
            JOIN dependency AS edge ON edge.job_id = held_job.id
            ORDER BY edge.needs_id
        ));
        PERFORM forge_release(waiting);
    END IF;
    RETURN NULL;
END $$;
