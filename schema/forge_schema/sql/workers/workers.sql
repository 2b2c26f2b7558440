-- Every worker, or one by id or by name: seconds since it was last heard from, and its leases.
SELECT
    worker.id, worker.name, worker.kind,
    forge_status(worker.status, held.leases) AS status, worker.command, worker.accelerator,
    worker.gpus, worker.cpus, worker.memory_mb, worker.disk_mb, worker.labels, worker.version,
    worker.price_per_hour, worker.condition, worker.speed, worker.last_seen_at, worker.address,
    CASE WHEN worker.gangs_after > forge_now() THEN worker.gangs_after END AS gangs_after,
    worker.suspected_for,
    CASE
        WHEN forge_rests(worker) THEN extract(EPOCH FROM worker.rests_until - forge_now())::float8
    END AS rests_s,
    extract(EPOCH FROM forge_now() - worker.last_seen_at)::float8 AS silent_s,
    worker.connected_at IS NOT NULL AND worker.status <> 'offline' AND NOT forge_is_fresh(worker)
    AS silent,
    (
        SELECT draft.job_id FROM draft
        WHERE draft.worker_id = worker.id AND draft.until > forge_now()
    ) AS keeps_for,
    held.leases
FROM worker
CROSS JOIN LATERAL (
    SELECT count(*) AS leases FROM lease
    WHERE lease.worker_id = worker.id AND lease.over IS NULL
) AS held
WHERE
    (%(worker_id)s::bigint IS NULL OR worker.id = %(worker_id)s)
    AND (%(name)s::text IS NULL OR worker.name = %(name)s)
ORDER BY worker.name
