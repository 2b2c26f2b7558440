-- Registers a boot of a worker that an admin created. Its name, its pinned labels and an
-- `ephemeral` set by the admin stay. Returns no row while a boot with another folder, heard from
-- less than `alive` ago, is this worker.
WITH registered AS (
    UPDATE worker SET
        boot_id = %(boot_id)s, folder_id = %(folder_id)s, status = 'connecting',
        kind = CASE WHEN kind = 'ephemeral' THEN kind ELSE %(kind)s::worker_kind END,
        accelerator = %(accelerator)s, gpus = %(gpus)s, cpus = %(cpus)s,
        memory_mb = %(memory_mb)s, disk_mb = %(disk_mb)s,
        labels = %(labels)s::jsonb || pinned_labels, local = %(local)s,
        price_per_hour = %(price_per_hour)s, version = %(version)s, speed = %(speed)s,
        address = %(address)s,
        -- Whoever restarted it may have mended what kept others from reaching it.
        unreached_by = CASE
            WHEN boot_id = %(boot_id)s AND address = %(address)s THEN unreached_by
        END,
        gangs_after = CASE
            WHEN boot_id = %(boot_id)s AND address = %(address)s THEN gangs_after
        END,
        last_seen_at = forge_now(),
        command = CASE WHEN boot_id = %(boot_id)s THEN command ELSE nullif(command, 'stop') END
    WHERE
        id = %(worker_id)s
        AND (
            status = 'offline' OR %(replace)s
            OR last_seen_at <= forge_now() - %(alive)s::interval
            OR (folder_id <> %(folder_id)s::uuid) IS NOT TRUE
        )
    RETURNING id, name, kind
),
told AS (
    INSERT INTO event (at, actor, action, worker_id, detail)
    SELECT
        forge_now(), 'worker:' || id, 'registered', id,
        jsonb_build_object('name', name, 'boot_id', %(boot_id)s::uuid)
    FROM registered
)
SELECT id, name, kind FROM registered
