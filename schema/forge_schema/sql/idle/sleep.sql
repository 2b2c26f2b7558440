-- Records that a worker found no job and sleeps, what it has free, which parts of jobs it has, and the
-- `nonce` of its next claim if a gang may have it. Returns the transaction, and whether gangs wait
-- then; or no row if the worker takes no jobs.
INSERT INTO idle (
    worker_id, gpu_model, boot_id, cpus, memory_mb, disk_mb, gpus, vram_mb, jobs, warm,
    cpu_speed, gpu_speed, price, spot, nonce, since
)
SELECT
    id, %(gpu_model)s, boot_id, %(cpus)s, %(memory_mb)s, %(disk_mb)s, %(gpus)s, %(vram_mb)s,
    %(jobs)s, %(warm)s::integer[], forge_speed(speed, false), forge_speed(speed, true),
    price_per_hour,
    coalesce(labels ->> 'forge.spot' = 'yes', false), %(nonce)s::uuid, forge_now()
FROM worker
WHERE id = %(worker_id)s AND forge_takes_jobs(worker)
ON CONFLICT (worker_id, gpu_model) DO UPDATE
    SET
        boot_id = excluded.boot_id, cpus = excluded.cpus, memory_mb = excluded.memory_mb,
        disk_mb = excluded.disk_mb, gpus = excluded.gpus, vram_mb = excluded.vram_mb,
        jobs = excluded.jobs, warm = excluded.warm,
        cpu_speed = excluded.cpu_speed, gpu_speed = excluded.gpu_speed,
        price = excluded.price, spot = excluded.spot, nonce = excluded.nonce,
        since = CASE
            WHEN idle.boot_id = excluded.boot_id THEN coalesce(idle.since, excluded.since)
            ELSE excluded.since
        END
RETURNING
    pg_current_xact_id()::text::bigint AS xid,
    nonce IS NOT NULL AND EXISTS (
        SELECT
        FROM shape
        JOIN lane ON lane.shape_id = shape.id AND NOT lane.paused
        CROSS JOIN LATERAL (SELECT FROM ready WHERE ready.lane_id = lane.id LIMIT 1) AS job
        WHERE shape.nodes > 1
    ) AS gangs
