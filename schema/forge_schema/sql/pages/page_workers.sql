-- A page of workers that match a filter, by name, after a name: seconds since each was last heard
-- from, its leases, and how many of its GPUs they hold. A job that is only stored holds none. Of the
-- labels, not those of our own are searched: they have the names of others' secrets.
WITH held AS MATERIALIZED (
    SELECT
        worker_id, count(*) AS leases,
        sum(cardinality(devices)) FILTER (WHERE phase <> 'finishing') AS gpus
    FROM lease
    WHERE over IS NULL
    GROUP BY worker_id
)
SELECT
    worker.id, worker.name, worker.kind,
    forge_status(worker.status, held.leases) AS status, worker.command, worker.accelerator,
    worker.gpus, worker.cpus, worker.memory_mb, worker.labels, worker.price_per_hour,
    worker.condition, worker.token_expires_at,
    worker.boot_id = '00000000-0000-0000-0000-000000000000' AS never_came,
    worker.suspected_for,
    CASE
        WHEN forge_rests(worker) THEN extract(EPOCH FROM worker.rests_until - forge_now())::float8
    END AS rests_s,
    extract(EPOCH FROM forge_now() - worker.last_seen_at)::float8 AS silent_s,
    coalesce(held.leases, 0)::integer AS leases,
    coalesce(held.gpus, 0)::integer AS gpus_held
FROM worker
LEFT JOIN held ON held.worker_id = worker.id
WHERE (%(after)s::text IS NULL OR worker.name > %(after)s)
    AND (
        %(statuses)s::worker_status[] IS NULL
        OR forge_status(worker.status, held.leases) = ANY(%(statuses)s::worker_status[])
    )
    AND (
        %(words)s::text[] IS NULL
        OR concat_ws(
            ' ', worker.name, worker.kind, worker.accelerator,
            (SELECT string_agg(gpu ->> 'name', ' ') FROM jsonb_array_elements(worker.gpus) AS gpu),
            (
                SELECT string_agg(label.key || '=' || label.value, ' ')
                FROM jsonb_each_text(worker.labels || worker.pinned_labels) AS label
                WHERE NOT starts_with(label.key, 'forge.')
            )
        ) ILIKE ALL(%(words)s::text[])
    )
ORDER BY worker.name
LIMIT %(count)s
