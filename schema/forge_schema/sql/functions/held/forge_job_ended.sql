-- Releases the jobs that wait for those that ended just now, and passes on their turns. The ends
-- that a release itself stores are followed up by that release.
CREATE OR REPLACE FUNCTION forge_job_ended() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    waiting bigint[];
    lines text[];
BEGIN
    IF pg_trigger_depth() > 1 THEN
        RETURN NULL;
    END IF;
    -- One look at each of two indexes for each job.
    SELECT
        array_agg(found.job_id) FILTER (WHERE found.job_id IS NOT NULL),
        array_agg(found.line) FILTER (WHERE found.line IS NOT NULL)
    INTO waiting, lines
    FROM ended
    CROSS JOIN LATERAL (
        (
            SELECT job_id, NULL AS line FROM dependency
            WHERE needs_id = ended.job_id AND met IS NULL
            LIMIT 10000
        )
        UNION ALL
        SELECT NULL, line FROM turn WHERE job_id = ended.job_id
    ) AS found;
    IF lines IS NOT NULL THEN
        DELETE FROM turn USING ended WHERE turn.job_id = ended.job_id;
    END IF;
    IF num_nonnulls(waiting, lines) > 0 THEN
        PERFORM forge_release(coalesce(waiting[1 : 10000], '{}'), coalesce(lines, '{}'));
    END IF;
    RETURN NULL;
END $$;
