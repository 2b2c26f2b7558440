-- The current demand for each shape, for autoscalers: `demand` counts machines, of which a job needs
-- as many as it has `nodes`. `max_demand` is how many they would use, which is more for jobs with a
-- range of machines.
CREATE VIEW queue_demand AS
WITH waiting AS (
    SELECT lane_id, count(*) AS jobs FROM ready GROUP BY lane_id
),
held AS (
    SELECT lane_id, count(*) AS jobs FROM lease GROUP BY lane_id
),
more AS (
    SELECT of_jobs.lane_id, sum(of_jobs.machines) AS machines
    FROM (
        SELECT
            ready.lane_id,
            coalesce((job.spec ->> 'max_nodes')::integer, shape.nodes) - shape.nodes AS machines
        FROM shape
        JOIN lane ON lane.shape_id = shape.id AND NOT lane.paused
        JOIN ready ON ready.lane_id = lane.id
        JOIN job ON job.id = ready.job_id
        WHERE shape.nodes > 1
        UNION ALL
        SELECT lease.lane_id, (job.spec ->> 'max_nodes')::integer - lease.nodes
        FROM lease JOIN job ON job.id = lease.job_id
        WHERE lease.nodes > 1 AND lease.rank = 0 AND job.spec ? 'max_nodes'
    ) AS of_jobs
    GROUP BY of_jobs.lane_id
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
    shape.nodes,
    sum(
        coalesce(held.jobs, 0) + coalesce(more.machines, 0)
        + CASE WHEN lane.paused THEN 0 ELSE coalesce(waiting.jobs, 0) * shape.nodes END
    )::integer AS max_demand
FROM shape
JOIN lane ON lane.shape_id = shape.id
LEFT JOIN waiting ON waiting.lane_id = lane.id
LEFT JOIN held ON held.lane_id = lane.id
LEFT JOIN more ON more.lane_id = lane.id
GROUP BY shape.id;
