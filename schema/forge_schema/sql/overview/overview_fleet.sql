-- The number of workers by status, their GPUs and their cost per hour: of all of them, and of those
-- that run jobs of some owners.
WITH holders AS MATERIALIZED (
    SELECT lease.worker_id, count(*) AS leases, bool_or(lane.owner = ANY(%(scope)s::text[])) AS of_owner
    FROM lease
    JOIN lane ON lane.id = lease.lane_id
    WHERE lease.over IS NULL
    GROUP BY lease.worker_id
)
SELECT
    now.status,
    count(*)::integer AS workers,
    coalesce(sum(jsonb_array_length(worker.gpus)), 0)::integer AS gpus,
    sum(worker.price_per_hour) FILTER (
        WHERE %(scope)s::text[] IS NULL OR holders.of_owner
    ) AS price_per_hour
FROM worker
LEFT JOIN holders ON holders.worker_id = worker.id
CROSS JOIN LATERAL (SELECT forge_status(worker.status, holders.leases) AS status) AS now
GROUP BY now.status
ORDER BY now.status
