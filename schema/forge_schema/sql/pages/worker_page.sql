-- One worker: its description, its capabilities, and seconds since it was last heard from.
SELECT
    worker.id, worker.name, worker.kind,
    forge_status(
        worker.status,
        (SELECT count(*) FROM lease WHERE lease.worker_id = worker.id AND lease.over IS NULL)
    ) AS status,
    worker.command, worker.accelerator,
    worker.gpus, worker.cpus, worker.memory_mb, worker.disk_mb, worker.labels, worker.pinned_labels,
    worker.local, worker.address, worker.price_per_hour, worker.version, worker.condition, worker.speed,
    worker.token_hash IS NOT NULL AS has_token, worker.token_expires_at, worker.registered_at,
    worker.boot_id = '00000000-0000-0000-0000-000000000000' AS never_came,
    worker.connected_at, worker.last_seen_at,
    worker.suspected_for,
    CASE
        WHEN forge_rests(worker) THEN extract(EPOCH FROM worker.rests_until - forge_now())::float8
    END AS rests_s,
    extract(EPOCH FROM forge_now() - worker.last_seen_at)::float8 AS silent_s
FROM worker
WHERE worker.id = %(worker_id)s
