-- Looks at jobs that were held just now: what they wait for may have happened already. If not, it
-- cannot happen before this transaction ends, and whatever happens later finds them.
CREATE OR REPLACE FUNCTION forge_job_held() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    waiting bigint[];
    needed bigint[];
BEGIN
    -- Most submits hold nothing.
    IF NOT EXISTS (SELECT FROM added) THEN
        RETURN NULL;
    END IF;
    waiting := ARRAY(
        SELECT job_id FROM added
        WHERE EXISTS (SELECT FROM dependency WHERE dependency.job_id = added.job_id)
    );
    needed := ARRAY(
        SELECT DISTINCT edge.needs_id
        FROM unnest(waiting) AS held_job (id)
        JOIN dependency AS edge ON edge.job_id = held_job.id
        ORDER BY edge.needs_id
    );
    PERFORM forge_lock_places(needed);
    -- While those were locked, they may have been passed over when turns were given.
    PERFORM forge_release(waiting, ARRAY(
        SELECT line FROM added WHERE line IS NOT NULL
        UNION
        SELECT line FROM held WHERE job_id = ANY(needed) AND line IS NOT NULL
    ));
    RETURN NULL;
END $$;
