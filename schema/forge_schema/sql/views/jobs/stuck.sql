-- Jobs that do not progress, and why: `unclaimable` fits no known worker; `unattended` has been
-- ready for ten minutes while a suitable worker is idle; `stalled` runs and has given no sign of
-- life for half an hour; `expired` has an expired lease that no sweeper ends.
CREATE VIEW stuck AS
SELECT
    found.kind,
    found.job_id,
    job.name,
    lane.owner,
    lane.queue,
    lane.shape_id,
    found.worker_id,
    worker.name AS worker,
    found.since,
    extract(EPOCH FROM forge_now() - found.since)::double precision AS seconds
FROM (
    SELECT
        CASE WHEN served.by_any THEN 'unattended' ELSE 'unclaimable' END AS kind,
        ready.job_id,
        ready.lane_id,
        NULL::bigint AS worker_id,
        ready.ready_at AS since
    FROM lane
    JOIN shape ON shape.id = lane.shape_id
    JOIN queue AS q ON q.name = lane.queue
    JOIN owner_quota AS o ON o.owner = lane.owner
    LEFT JOIN team AS t ON t.name = o.team
    CROSS JOIN LATERAL (
        SELECT
            count(*) >= shape.nodes AS by_any,
            count(*) FILTER (
                WHERE worker.status IN ('idle', 'busy') AND worker.command IS NULL
                    AND worker.id NOT IN (SELECT lease.worker_id FROM lease WHERE lease.over IS NULL)
                    AND worker.last_seen_at > forge_now() - interval '2 minutes'
            ) >= shape.nodes AS by_idle_ones
        FROM worker
        WHERE forge_serves(shape, worker)
    ) AS served
    CROSS JOIN LATERAL (
        SELECT
            count(*) FILTER (WHERE other.queue = q.name AND lease.rank = 0) AS queue_jobs,
            coalesce(sum(needs.gpus) FILTER (WHERE other.queue = q.name), 0) AS queue_gpus,
            count(*) FILTER (WHERE other.owner = o.owner AND lease.rank = 0) AS owner_jobs,
            coalesce(sum(needs.gpus) FILTER (WHERE other.owner = o.owner), 0) AS owner_gpus,
            count(*) FILTER (WHERE theirs.team = t.name AND lease.rank = 0) AS team_jobs,
            coalesce(sum(needs.gpus) FILTER (WHERE theirs.team = t.name), 0) AS team_gpus
        FROM lease
        JOIN lane AS other ON other.id = lease.lane_id
        JOIN shape AS needs ON needs.id = other.shape_id
        JOIN owner_quota AS theirs ON theirs.owner = other.owner
        WHERE num_nonnulls(
            q.max_jobs, q.max_gpus, o.max_jobs, o.max_gpus, t.max_jobs, t.max_gpus
        ) > 0
    ) AS used
    JOIN ready ON ready.lane_id = lane.id
    WHERE NOT served.by_any
        OR (
            served.by_idle_ones
            AND NOT lane.paused
            AND ready.ready_at < forge_now() - interval '10 minutes'
            AND coalesce(used.queue_jobs < q.max_jobs, true)
            AND coalesce(used.owner_jobs < o.max_jobs, true)
            AND coalesce(used.queue_gpus + shape.gpus * shape.nodes <= q.max_gpus, true)
            AND coalesce(used.owner_gpus + shape.gpus * shape.nodes <= o.max_gpus, true)
            AND coalesce(used.team_jobs < t.max_jobs, true)
            AND coalesce(used.team_gpus + shape.gpus * shape.nodes <= t.max_gpus, true)
        )
    UNION ALL
    SELECT 'stalled', lease.job_id, lease.lane_id, lease.worker_id, sign.at
    FROM lease
    CROSS JOIN LATERAL (
        SELECT greatest(
            lease.started_at,
            (
                SELECT metric.at FROM metric
                WHERE metric.job_id = lease.job_id AND metric.token = lease.token
                    AND metric.rank = lease.rank
                ORDER BY metric.number DESC LIMIT 1
            ),
            (
                SELECT log_chunk.created_at FROM log_chunk
                WHERE log_chunk.job_id = lease.job_id AND log_chunk.token = lease.token
                    AND log_chunk.rank = lease.rank
                ORDER BY log_chunk.number DESC LIMIT 1
            ),
            (
                SELECT checkpoint.created_at FROM checkpoint
                WHERE checkpoint.job_id = lease.job_id AND checkpoint.token = lease.token
                ORDER BY checkpoint.number DESC LIMIT 1
            )
        ) AS at
    ) AS sign
    WHERE lease.started_at IS NOT NULL AND lease.over IS NULL
        AND sign.at < forge_now() - interval '30 minutes'
    UNION ALL
    SELECT 'expired', lease.job_id, lease.lane_id, lease.worker_id, lease.expires_at
    FROM lease
    WHERE lease.expires_at < forge_now() - interval '1 minute'
) AS found
JOIN job ON job.id = found.job_id
JOIN lane ON lane.id = found.lane_id
LEFT JOIN worker ON worker.id = found.worker_id;
