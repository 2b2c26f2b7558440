-- The workers by name, online ones first: seconds since each was last heard from, its leases, and
-- its machine's condition, up to two minutes old.
SELECT
    worker.id, worker.name, worker.kind,
    forge_status(worker.status, held.leases) AS status, worker.command, worker.cpus,
    worker.memory_mb, jsonb_array_length(worker.gpus) AS gpus, worker.price_per_hour,
    worker.condition,
    extract(EPOCH FROM forge_now() - worker.last_seen_at)::double precision AS silent_s,
    coalesce(held.leases, 0)::integer AS leases
FROM worker
LEFT JOIN (
    SELECT lease.worker_id, count(*) AS leases FROM lease
    WHERE lease.over IS NULL
    GROUP BY lease.worker_id
) AS held ON held.worker_id = worker.id
ORDER BY worker.status = 'offline', worker.name
LIMIT %(count)s
