-- The held jobs that wait for one of these jobs, at most 10,000 of them.
CREATE OR REPLACE FUNCTION forge_dependents(needed bigint[]) RETURNS bigint[]
LANGUAGE sql STABLE AS $$
    SELECT ARRAY(
        SELECT DISTINCT edge.job_id
        FROM unnest(needed) AS job (id)
        JOIN dependency AS edge ON edge.needs_id = job.id AND edge.met IS NULL
        LIMIT 10000
    )
$$;
