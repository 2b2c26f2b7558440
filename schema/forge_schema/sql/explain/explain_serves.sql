-- For some workers and shapes: which shapes each worker can serve when idle, and what it lends to a
-- job of each.
SELECT
    worker.id AS worker_id, array_agg(shape.id) AS shapes, array_agg(lent.cpus) AS cpus,
    array_agg(lent.memory_mb) AS memory_mb
FROM worker
JOIN shape ON forge_serves(shape, worker)
CROSS JOIN LATERAL forge_lent(shape, worker) AS lent
WHERE worker.id = ANY(%(workers)s::bigint[]) AND shape.id = ANY(%(shapes)s::integer[])
    AND worker.command IS NULL
GROUP BY worker.id
