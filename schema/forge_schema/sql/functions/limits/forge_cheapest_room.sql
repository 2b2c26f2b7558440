-- The worker on which the first of some `victims`, in their order, give room to a job of a shape, and
-- these; the worker of the fewest and earliest of them. None if no worker would have room. One that has
-- room already keeps it for another job: who left would come back to it. So it counts only `for_limits`.
CREATE OR REPLACE FUNCTION forge_cheapest_room(
    wanted integer, victims bigint[], for_limits boolean, OUT worker_id bigint, OUT jobs bigint[]
)
LANGUAGE sql STABLE AS $$
    WITH of_worker AS MATERIALIZED (
        SELECT
            lease.worker_id,
            array_agg(lease.job_id ORDER BY array_position(victims, lease.job_id)) AS jobs
        FROM lease WHERE lease.job_id = ANY(victims)
        GROUP BY lease.worker_id
    )
    SELECT of_worker.worker_id, enough.jobs
    FROM of_worker
    JOIN shape ON shape.id = wanted
    JOIN worker ON worker.id = of_worker.worker_id
    CROSS JOIN LATERAL (
        SELECT of_worker.jobs[:n] AS jobs, n FROM generate_subscripts(of_worker.jobs, 1) AS n
        WHERE forge_fits_without(wanted, worker.id, of_worker.jobs[:n])
        ORDER BY n
        LIMIT 1
    ) AS enough
    WHERE forge_takes_jobs(worker) AND forge_fits(shape, worker)
        AND (for_limits OR NOT forge_fits_without(wanted, worker.id, '{}'))
        AND NOT EXISTS (SELECT FROM draft WHERE draft.worker_id = worker.id)
    ORDER BY array_position(victims, enough.jobs[enough.n]), enough.n, of_worker.worker_id
    LIMIT 1
$$;
