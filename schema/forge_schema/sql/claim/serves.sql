-- Which of some shapes a worker can serve when idle, alone or in a gang of `nodes`, and what it lends
-- to a job of each.
-- It `leaves` jobs of a shape to spot machines first.
SELECT
    shape.id, lent.cpus, lent.memory_mb, shape.disk_mb, shape.gpus, shape.gpu_model, shape.vram_mb,
    shape.nodes, forge_leaves(shape, worker) AS leaves
FROM worker
JOIN shape ON shape.id = ANY(%(shapes)s::integer[])
    AND forge_serves(shape, worker)
CROSS JOIN LATERAL forge_lent(shape, worker) AS lent
WHERE worker.id = %(worker_id)s
