-- Of some workers and some shapes, which of the shapes each worker can serve when idle.
SELECT worker.id AS worker_id, array_agg(shape.id) AS shapes
FROM worker
JOIN shape ON forge_fits(shape, worker)
WHERE worker.id = ANY(%(workers)s::bigint[]) AND shape.id = ANY(%(shapes)s::integer[])
    AND worker.command IS NULL
GROUP BY worker.id
