-- The lanes whose shape a worker can serve when idle, with their needs, their owner's share and the
-- `nice` of their first job; none for a worker that is draining or stopping.
-- Of more than a `few` lanes in all, only those that have jobs, found by jumping from one to the
-- next, and those `besides`.
WITH RECURSIVE shares AS MATERIALIZED (SELECT forge_shares() AS by_owner),
count AS MATERIALIZED (
    SELECT count(*) <= %(few)s AS few FROM (SELECT FROM lane LIMIT %(few)s + 1) AS these
),
waiting AS (
    SELECT CASE WHEN NOT count.few THEN (
        SELECT ready.lane_id FROM ready ORDER BY ready.lane_id LIMIT 1
    ) END AS lane_id
    FROM count
    UNION ALL
    SELECT (
        SELECT ready.lane_id FROM ready
        WHERE ready.lane_id > waiting.lane_id
        ORDER BY ready.lane_id LIMIT 1
    )
    FROM waiting WHERE waiting.lane_id IS NOT NULL
),
open AS MATERIALIZED (
    SELECT lane.* FROM count JOIN lane ON count.few
    UNION ALL
    SELECT lane.*
    FROM count
    CROSS JOIN (
        SELECT lane_id FROM waiting WHERE lane_id IS NOT NULL
        UNION
        SELECT unnest(%(besides)s::integer[])
    ) AS these
    JOIN lane ON lane.id = these.lane_id AND NOT count.few
),
served AS MATERIALIZED (
    SELECT ARRAY(
        SELECT shape.id
        FROM (SELECT DISTINCT open.shape_id FROM open) AS these
        JOIN shape ON shape.id = these.shape_id
        WHERE forge_fits(shape, worker)
    ) AS shapes
    FROM worker
    WHERE worker.id = %(worker_id)s AND worker.command IS NULL
)
SELECT
    lane.id, lent.cpus, lent.memory_mb, shape.disk_mb, shape.gpus, shape.gpu_model, shape.vram_mb,
    num_nonnulls(q.max_jobs, q.max_gpus, o.max_jobs, o.max_gpus) > 0 AS limited,
    lane.owner, o.weight, coalesce((shares.by_owner ->> lane.owner)::float8, 0) AS share,
    head.nice
FROM served
JOIN open AS lane ON lane.shape_id = ANY(served.shapes)
JOIN worker ON worker.id = %(worker_id)s
JOIN shape ON shape.id = lane.shape_id
CROSS JOIN LATERAL forge_lent(shape, worker) AS lent
JOIN queue AS q ON q.name = lane.queue
JOIN owner_quota AS o ON o.owner = lane.owner
CROSS JOIN shares
LEFT JOIN LATERAL (
    SELECT ready.nice FROM ready
    WHERE ready.lane_id = lane.id AND NOT lane.paused
    ORDER BY ready.nice, ready.job_id
    LIMIT 1
) AS head ON true
ORDER BY lane.id
