-- What a worker lends, when idle, to a job of each of some shapes, or of all shapes: alone, or as one of
-- the `nodes` of a gang; nothing for a shape that it cannot serve.
-- It `leaves` jobs of a shape to spot machines first.
SELECT
    shape.id, lent.cpus, lent.memory_mb, shape.disk_mb, shape.gpus, shape.gpu_model, shape.vram_mb,
    shape.nodes, lent.leaves
FROM worker
JOIN shape ON shape.id = ANY(coalesce(%(shapes)s::integer[], ARRAY(SELECT id FROM shape)))
LEFT JOIN LATERAL (
    SELECT of_job.cpus, of_job.memory_mb, forge_leaves(shape, worker) AS leaves
    FROM forge_lent(shape, worker) AS of_job
    WHERE forge_serves(shape, worker)
) AS lent ON true
WHERE worker.id = %(worker_id)s
