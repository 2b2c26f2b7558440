-- The held jobs that wait for one of these jobs, at most 10,000 of them.
CREATE OR REPLACE FUNCTION forge_dependents(needed bigint[]) RETURNS bigint[]
LANGUAGE sql STABLE AS $$
    SELECT ARRAY(
        SELECT DISTINCT edge.job_id
        FROM unnest(needed) AS job (id)
        -- One look at an index for each job.
        CROSS JOIN LATERAL (
            SELECT job_id FROM dependency
            WHERE needs_id = job.id AND met IS NULL
            LIMIT 10000
        ) AS edge
        LIMIT 10000
    )
$$;
