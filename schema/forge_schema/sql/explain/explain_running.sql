-- The running jobs of some workers: owner, name, run time so far, and resources held.
SELECT
    lease.worker_id, job.owner, job.name, lent.cpus, lent.memory_mb, shape.disk_mb, shape.gpus,
    shape.gpu_model, shape.vram_mb, lease.devices,
    extract(EPOCH FROM forge_now() - lease.claimed_at)::float8 AS held_s
FROM lease
JOIN job ON job.id = lease.job_id
JOIN lane ON lane.id = lease.lane_id
JOIN shape ON shape.id = lane.shape_id
JOIN worker ON worker.id = lease.worker_id
CROSS JOIN LATERAL forge_lent(shape, worker) AS lent
WHERE lease.worker_id = ANY(%(workers)s::bigint[]) AND lease.over IS NULL
