-- The workers that the next attempt of a job should not run on, now that one ended on worker
-- `failed_on`: those where it has failed, and if it ran out of memory those that have no more of it for
-- the job than that worker. NULL if no other worker takes such jobs: it must not wait for nobody.
-- Of a large fleet, it compares the first few workers that could run the job.
CREATE OR REPLACE FUNCTION forge_avoids(
    of_job bigint, of_lane integer, failed_on bigint, why reason, said text
) RETURNS bigint[]
LANGUAGE sql STABLE AS $$
    WITH able AS MATERIALIZED (
        SELECT worker.id, forge_memory(shape, worker, why) AS memory_mb
        FROM lane
        JOIN shape ON shape.id = lane.shape_id AND shape.nodes = 1
        JOIN worker ON forge_takes_jobs(worker) AND forge_serves(shape, worker)
        WHERE lane.id = of_lane AND worker.id <> failed_on
        LIMIT 50
    ),
    failed AS MATERIALIZED (
        SELECT failed_on AS id
        UNION
        SELECT worker_id FROM attempt_row
        WHERE job_id = of_job
            AND reason NOT IN ('preempted', 'drained', 'run_ended', 'cancelled')
    ),
    small AS MATERIALIZED (
        SELECT able.id
        FROM lane
        JOIN shape ON shape.id = lane.shape_id
        JOIN worker ON worker.id = failed_on
        JOIN able ON able.memory_mb <= forge_memory(shape, worker, why)
        WHERE lane.id = of_lane
            AND (why = 'oom' OR (shape.gpus > 0 AND said ~* 'out ?of ?memory'))
    )
    SELECT CASE
        WHEN EXISTS (
            SELECT FROM able WHERE id NOT IN (SELECT id FROM failed UNION ALL SELECT id FROM small)
        ) THEN ARRAY(SELECT id FROM failed UNION SELECT id FROM small)
        WHEN EXISTS (SELECT FROM able WHERE id NOT IN (SELECT id FROM failed))
            THEN ARRAY(SELECT id FROM failed)
        WHEN EXISTS (SELECT FROM able) THEN ARRAY[failed_on]
    END
$$;
