-- Registers a worker by its name; a restart is a new boot of the same worker. Returns no row while
-- a boot with another folder, heard from less than `alive` ago, has the name.
WITH registered AS (
    INSERT INTO worker (
        name, boot_id, folder_id, kind, accelerator, gpus, cpus, memory_mb, disk_mb, labels, local,
        price_per_hour, version, speed, address, registered_at, last_seen_at
    )
    VALUES (
        %(name)s, %(boot_id)s, %(folder_id)s, %(kind)s, %(accelerator)s, %(gpus)s, %(cpus)s,
        %(memory_mb)s, %(disk_mb)s, %(labels)s, %(local)s, %(price_per_hour)s, %(version)s,
        %(speed)s, %(address)s, forge_now(), forge_now()
    )
    ON CONFLICT ON CONSTRAINT worker_name DO UPDATE SET
        boot_id = excluded.boot_id, folder_id = excluded.folder_id, kind = excluded.kind,
        status = 'connecting',
        accelerator = excluded.accelerator, gpus = excluded.gpus, cpus = excluded.cpus,
        memory_mb = excluded.memory_mb, disk_mb = excluded.disk_mb,
        labels = excluded.labels || worker.pinned_labels,
        local = excluded.local, price_per_hour = excluded.price_per_hour,
        version = excluded.version, speed = excluded.speed, address = excluded.address,
        -- Whoever restarted it may have mended what kept others from reaching it.
        unreached_by = CASE
            WHEN worker.boot_id = excluded.boot_id AND worker.address = excluded.address
                THEN worker.unreached_by
        END,
        gangs_after = CASE
            WHEN worker.boot_id = excluded.boot_id AND worker.address = excluded.address
                THEN worker.gangs_after
        END,
        last_seen_at = excluded.last_seen_at,
        command = CASE
            WHEN worker.boot_id = excluded.boot_id THEN worker.command
            ELSE nullif(worker.command, 'stop')
        END
    WHERE
        worker.status = 'offline' OR %(replace)s
        OR worker.last_seen_at <= forge_now() - %(alive)s::interval
        OR (worker.folder_id <> excluded.folder_id) IS NOT TRUE
    RETURNING id
),
told AS (
    INSERT INTO event (at, actor, action, worker_id, detail)
    SELECT
        forge_now(), 'worker:' || id, 'registered', id,
        jsonb_build_object('name', %(name)s::text, 'boot_id', %(boot_id)s::uuid)
    FROM registered
)
SELECT id FROM registered
