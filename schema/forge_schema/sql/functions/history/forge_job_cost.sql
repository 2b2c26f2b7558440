-- What a job has cost: its ended attempts, and what its workers cost that run it now. Null if no worker
-- had a price.
CREATE OR REPLACE FUNCTION forge_job_cost(of_job bigint) RETURNS double precision
LANGUAGE sql STABLE AS $$
    SELECT sum(cost) FROM (
        SELECT cost FROM attempt_row WHERE job_id = of_job
        UNION ALL
        SELECT cost FROM outcome WHERE job_id = of_job
        UNION ALL
        SELECT forge_cost(worker_id, claimed_at, coalesce((over ->> 'at')::timestamptz, forge_now()))
        FROM lease WHERE job_id = of_job
    ) AS each
$$;
