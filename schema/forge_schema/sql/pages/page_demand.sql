-- Demand and supply, the most wanted first: for each shape and queue with waiting or running jobs,
-- of some owners or of all, how many online workers could serve the shape when idle, and how many
-- such jobs they could run at once. A gang needs room on as many of them as it has `nodes`.
WITH waiting AS MATERIALIZED (
    SELECT lane_id, count(*) AS jobs FROM ready GROUP BY lane_id
),
held AS MATERIALIZED (
    SELECT lane_id, count(*) FILTER (WHERE rank = 0) AS jobs FROM lease GROUP BY lane_id
),
wanted AS MATERIALIZED (
    SELECT
        lane.shape_id, lane.queue, bool_or(lane.paused) AS paused,
        sum(coalesce(waiting.jobs, 0))::integer AS waiting,
        sum(coalesce(held.jobs, 0))::integer AS running
    FROM lane
    LEFT JOIN waiting ON waiting.lane_id = lane.id
    LEFT JOIN held ON held.lane_id = lane.id
    WHERE (waiting.jobs IS NOT NULL OR held.jobs IS NOT NULL)
        AND (%(scope)s::text[] IS NULL OR lane.owner = ANY(%(scope)s::text[]))
    GROUP BY lane.shape_id, lane.queue
    ORDER BY waiting DESC, running DESC, lane.shape_id, lane.queue
    LIMIT %(count)s
),
served AS MATERIALIZED (
    SELECT
        shape.id AS shape_id,
        count(*)::integer AS workers,
        CASE WHEN count(*) < shape.nodes THEN 0 ELSE sum(least(
            floor(worker.cpus / nullif(lent.cpus, 0)),
            worker.memory_mb / nullif(lent.memory_mb, 0),
            worker.disk_mb / nullif(shape.disk_mb, 0),
            forge_gpus_match(worker.gpus, shape.gpu_model, shape.vram_mb) / nullif(shape.gpus, 0)
        ))::integer / shape.nodes END AS jobs
    FROM (SELECT DISTINCT shape_id FROM wanted) AS asked
    JOIN shape ON shape.id = asked.shape_id
    JOIN worker ON worker.status NOT IN ('offline', 'connecting', 'draining')
        AND worker.command IS NULL
        AND forge_serves(shape, worker)
    CROSS JOIN LATERAL forge_lent(shape, worker) AS lent
    GROUP BY shape.id
)
SELECT
    wanted.queue, wanted.paused, wanted.waiting, wanted.running, shape.id AS shape_id,
    shape.accelerator, shape.gpus, shape.gpu_model, shape.vram_mb, shape.cpus, shape.memory_mb,
    shape.labels, shape.target, shape.nodes,
    coalesce(served.workers, 0) AS workers, coalesce(served.jobs, 0) AS room
FROM wanted
JOIN shape ON shape.id = wanted.shape_id
LEFT JOIN served ON served.shape_id = wanted.shape_id
ORDER BY wanted.waiting DESC, wanted.running DESC, wanted.shape_id, wanted.queue
