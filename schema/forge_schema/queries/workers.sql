-- Every worker, how long it has been silent, and how many leases it holds.
SELECT
    worker.id, worker.name, worker.kind, worker.status, worker.command, worker.accelerator,
    worker.gpus, worker.cpus, worker.memory_mb, worker.disk_mb, worker.labels, worker.version,
    worker.last_seen_at,
    extract(EPOCH FROM forge_now() - worker.last_seen_at)::float8 AS silent_s,
    (SELECT count(*) FROM lease WHERE lease.worker_id = worker.id) AS leases
FROM worker
ORDER BY worker.name
