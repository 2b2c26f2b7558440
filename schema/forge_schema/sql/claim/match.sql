-- The lanes whose shape a worker can serve when idle, with their needs and their owner's share;
-- none for a worker that is draining or stopping.
WITH held AS MATERIALIZED (SELECT forge_held_by_owner() AS by_owner)
SELECT
    lane.id, lent.cpus, lent.memory_mb, shape.disk_mb, shape.gpus, shape.gpu_model, shape.vram_mb,
    num_nonnulls(q.max_jobs, q.max_gpus, o.max_jobs, o.max_gpus) > 0 AS limited,
    lane.owner, o.weight, coalesce((held.by_owner ->> lane.owner)::float8, 0) / o.weight AS share
FROM worker
JOIN shape ON forge_fits(shape, worker)
CROSS JOIN LATERAL forge_lent(shape, worker) AS lent
JOIN lane ON lane.shape_id = shape.id
JOIN queue AS q ON q.name = lane.queue
JOIN owner_quota AS o ON o.owner = lane.owner
CROSS JOIN held
WHERE worker.id = %(worker_id)s AND worker.command IS NULL
ORDER BY lane.id
