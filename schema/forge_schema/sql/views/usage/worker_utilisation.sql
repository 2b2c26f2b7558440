-- The use of each worker by day. An attempt counts on each day for as long as it was held there. A
-- worker is present from its registration until it was last seen.
CREATE VIEW worker_utilisation AS
SELECT
    used.worker_id,
    coalesce(worker.name, former_worker.name) AS worker,
    used.day,
    used.attempts,
    used.leased_s,
    used.running_s,
    used.useful_s,
    used.useful_s / nullif(used.leased_s - used.running_s, 0) AS useful_share,
    used.there_s,
    used.gpu_s,
    used.gpu_there_s,
    used.gpu_s / nullif(used.gpu_there_s, 0) AS gpu_share
FROM (
    SELECT
        worker_id,
        day,
        sum(attempts)::bigint AS attempts,
        sum(leased_s) AS leased_s,
        sum(running_s) AS running_s,
        sum(useful_s) AS useful_s,
        sum(there_s) AS there_s,
        sum(gpu_s) AS gpu_s,
        sum(gpu_there_s) AS gpu_there_s
    FROM (
        SELECT
            held.worker_id, dates.day::date AS day, held.attempts, held.leased_s,
            0::double precision AS running_s, held.useful_s, held.gpu_s,
            0::double precision AS there_s, 0::double precision AS gpu_there_s
        FROM generate_series(
            -- No leases existed before the first job was submitted.
            (SELECT (submitted_at AT TIME ZONE 'UTC')::date - 1 FROM job ORDER BY id LIMIT 1)::timestamp,
            (forge_now() AT TIME ZONE 'UTC')::date::timestamp,
            interval '1 day'
        ) AS dates (day)
        CROSS JOIN LATERAL (
            SELECT
                dates.day AT TIME ZONE 'UTC' AS since,
                (dates.day + interval '1 day') AT TIME ZONE 'UTC' AS until
        ) AS bounds
        CROSS JOIN LATERAL (
            SELECT
                attempt.worker_id,
                count(*) FILTER (WHERE attempt.finished_at < bounds.until) AS attempts,
                sum(spent.held_s) AS leased_s,
                sum(greatest(extract(EPOCH FROM
                    least(
                        forge_useful_until(
                            attempt.reason, attempt.claimed_at, attempt.checkpoint_at,
                            attempt.finished_at
                        ),
                        bounds.until
                    )
                    - greatest(attempt.claimed_at, bounds.since)
                )::double precision, 0)) AS useful_s,
                sum(coalesce(
                    attempt.gpu_seconds * spent.held_s / nullif(
                        extract(EPOCH FROM attempt.finished_at - attempt.claimed_at), 0
                    )::double precision,
                    0
                )) AS gpu_s
            FROM attempt
            CROSS JOIN LATERAL (
                SELECT extract(EPOCH FROM
                    least(attempt.finished_at, bounds.until)
                    - greatest(attempt.claimed_at, bounds.since)
                )::double precision AS held_s
            ) AS spent
            WHERE attempt.finished_at >= bounds.since AND attempt.claimed_at < bounds.until
            GROUP BY attempt.worker_id
        ) AS held
        UNION ALL
        SELECT
            lease.worker_id, dates.day::date, 0, spent.held_s, spent.held_s, 0,
            spent.held_s * cardinality(lease.devices), 0, 0
        FROM lease
        CROSS JOIN LATERAL generate_series(
            (lease.claimed_at AT TIME ZONE 'UTC')::date::timestamp,
            (forge_now() AT TIME ZONE 'UTC')::date::timestamp,
            interval '1 day'
        ) AS dates (day)
        CROSS JOIN LATERAL (
            SELECT extract(EPOCH FROM
                least(forge_now(), (dates.day + interval '1 day') AT TIME ZONE 'UTC')
                - greatest(lease.claimed_at, dates.day AT TIME ZONE 'UTC')
            )::double precision AS held_s
        ) AS spent
        WHERE lease.over IS NULL
        UNION ALL
        SELECT
            known.id, dates.day::date, 0, 0, 0, 0, 0, spent.there_s,
            spent.there_s * jsonb_array_length(known.gpus)
        FROM (
            SELECT
                id, gpus, registered_at,
                CASE WHEN status = 'offline' THEN last_seen_at ELSE forge_now() END AS until
            FROM worker
            WHERE connected_at IS NOT NULL
        ) AS known
        CROSS JOIN LATERAL generate_series(
            (known.registered_at AT TIME ZONE 'UTC')::date::timestamp,
            (known.until AT TIME ZONE 'UTC')::date::timestamp,
            interval '1 day'
        ) AS dates (day)
        CROSS JOIN LATERAL (
            SELECT extract(EPOCH FROM
                least(known.until, (dates.day + interval '1 day') AT TIME ZONE 'UTC')
                - greatest(known.registered_at, dates.day AT TIME ZONE 'UTC')
            )::double precision AS there_s
        ) AS spent
    ) AS parts
    GROUP BY worker_id, day
) AS used
LEFT JOIN worker ON worker.id = used.worker_id
LEFT JOIN former_worker ON former_worker.id = used.worker_id;
