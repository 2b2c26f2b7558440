-- Releases the jobs that wait for those that ended just now. The ends that a release itself stores
-- are followed up by that release.
CREATE OR REPLACE FUNCTION forge_job_ended() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    waiting bigint[];
BEGIN
    IF pg_trigger_depth() > 1 THEN
        RETURN NULL;
    END IF;
    -- One look at an index for each job.
    waiting := ARRAY(
        SELECT edge.job_id
        FROM ended
        CROSS JOIN LATERAL (
            SELECT job_id FROM dependency
            WHERE needs_id = ended.job_id AND met IS NULL
            LIMIT 10000
        ) AS edge
        LIMIT 10000
    );
    IF waiting <> '{}' THEN
        PERFORM forge_release(waiting);
    END IF;
    RETURN NULL;
END $$;
