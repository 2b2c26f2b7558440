-- Those of some jobs that an unfinished one needs, each with the oldest that does: it starts from a
-- checkpoint, waits for the job, or has files of it as an input. Inputs are of jobs of the same
-- owner, so only the unfinished jobs of these owners are read for them.
CREATE OR REPLACE FUNCTION forge_needed(of_jobs bigint[])
RETURNS TABLE (job_id bigint, needed_by bigint)
LANGUAGE sql STABLE AS $$
    WITH unfinished AS MATERIALIZED (
        SELECT place.job_id
        FROM (
            SELECT job_id, lane_id FROM ready
            UNION ALL SELECT job_id, lane_id FROM scheduled
            UNION ALL SELECT job_id, lane_id FROM held
            UNION ALL SELECT job_id, lane_id FROM lease
        ) AS place
        JOIN lane ON lane.id = place.lane_id
        WHERE lane.owner IN (SELECT owner FROM job WHERE id = ANY(of_jobs))
    )
    SELECT needs.job_id, min(needs.needed_by)
    FROM (
        SELECT source_job_id AS job_id, id AS needed_by FROM job WHERE source_job_id = ANY(of_jobs)
        UNION ALL
        SELECT needs_id, job_id FROM dependency WHERE needs_id = ANY(of_jobs)
        UNION ALL
        SELECT source.id, job.id
        FROM unfinished
        JOIN job ON job.id = unfinished.job_id AND job.spec ? 'inputs'
        CROSS JOIN LATERAL unnest(forge_input_jobs(job)) AS source (id)
    ) AS needs
    WHERE needs.job_id = ANY(of_jobs)
        AND NOT EXISTS (SELECT FROM outcome WHERE outcome.job_id = needs.needed_by)
    GROUP BY needs.job_id
$$;
