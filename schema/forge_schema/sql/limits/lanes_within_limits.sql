-- Returns the given lanes in which one more job stays within the queue's and the owner's limits.
-- Valid only while the locks of `lock_limits` are held.
WITH used AS (
    SELECT lane.queue, lane.owner, count(*) AS jobs, sum(shape.gpus) AS gpus
    FROM lease
    JOIN lane ON lane.id = lease.lane_id
    JOIN shape ON shape.id = lane.shape_id
    GROUP BY lane.queue, lane.owner
)
SELECT lane.id
FROM lane
JOIN shape ON shape.id = lane.shape_id
JOIN queue AS q ON q.name = lane.queue
JOIN owner_quota AS o ON o.owner = lane.owner
CROSS JOIN LATERAL (
    SELECT
        coalesce(sum(jobs) FILTER (WHERE used.queue = q.name), 0) AS queue_jobs,
        coalesce(sum(gpus) FILTER (WHERE used.queue = q.name), 0) AS queue_gpus,
        coalesce(sum(jobs) FILTER (WHERE used.owner = o.owner), 0) AS owner_jobs,
        coalesce(sum(gpus) FILTER (WHERE used.owner = o.owner), 0) AS owner_gpus
    FROM used
) AS u
WHERE lane.id = ANY(%(lanes)s::integer[])
    AND (q.max_jobs IS NULL OR u.queue_jobs + 1 <= q.max_jobs)
    AND (q.max_gpus IS NULL OR u.queue_gpus + shape.gpus <= q.max_gpus)
    AND (o.max_jobs IS NULL OR u.owner_jobs + 1 <= o.max_jobs)
    AND (o.max_gpus IS NULL OR u.owner_gpus + shape.gpus <= o.max_gpus)
