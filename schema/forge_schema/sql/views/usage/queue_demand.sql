-- The current demand for each shape, for autoscalers: `demand` counts machines, of which a job needs
-- as many as it has `nodes`.
CREATE VIEW queue_demand AS
WITH waiting AS (
    SELECT lane_id, count(*) AS jobs FROM ready GROUP BY lane_id
),
held AS (
    SELECT lane_id, count(*) AS jobs FROM lease GROUP BY lane_id
)
SELECT
    shape.id AS shape_id, shape.accelerator, shape.gpus, shape.gpu_model, shape.vram_mb, shape.cpus,
    shape.memory_mb, shape.disk_mb, shape.labels, shape.target,
    sum(CASE WHEN lane.paused THEN 0 ELSE coalesce(waiting.jobs, 0) END)::integer AS waiting,
    sum(coalesce(held.jobs, 0))::integer AS running,
    sum(
        coalesce(held.jobs, 0)
        + CASE WHEN lane.paused THEN 0 ELSE coalesce(waiting.jobs, 0) * shape.nodes END
    )::integer AS demand,
    shape.nodes
FROM shape
JOIN lane ON lane.shape_id = shape.id
LEFT JOIN waiting ON waiting.lane_id = lane.id
LEFT JOIN held ON held.lane_id = lane.id
GROUP BY shape.id;
