-- How many workers are in which status, how many GPUs they have, and what they cost per hour: all of
-- them, and those that run jobs of an owner.
WITH holders AS MATERIALIZED (
    SELECT DISTINCT lease.worker_id
    FROM lease
    JOIN lane ON lane.id = lease.lane_id
    WHERE lane.owner = %(owner)s
)
SELECT
    worker.status,
    count(*)::integer AS workers,
    coalesce(sum(jsonb_array_length(worker.gpus)), 0)::integer AS gpus,
    sum(worker.price_per_hour) FILTER (
        WHERE %(owner)s::text IS NULL OR worker.id IN (SELECT worker_id FROM holders)
    ) AS price_per_hour
FROM worker
GROUP BY worker.status
ORDER BY worker.status
