-- What allows or prevents the start of a job: its lane and shape, the limits of queue and owner and
-- their current use, its owner's share as in `match`, the table where it waits, the jobs that it
-- waits for, the approval that it waits for, and the line where it waits for its turn.
WITH used_by AS MATERIALIZED (
    SELECT
        lane.queue, lane.owner, o.team, count(*) FILTER (WHERE lease.rank = 0) AS jobs,
        sum(shape.gpus) AS gpus
    FROM lease
    JOIN lane ON lane.id = lease.lane_id
    JOIN shape ON shape.id = lane.shape_id
    JOIN owner_quota AS o ON o.owner = lane.owner
    GROUP BY lane.queue, lane.owner, o.team
)
SELECT
    job.id AS job_id, job.nice, job.backoff_s, job.max_failures,
    lane.id, lane.shape_id, lane.owner, lane.queue,
    shape.accelerator, shape.cpus, shape.memory_mb, shape.disk_mb, shape.gpus, shape.gpu_model,
    shape.vram_mb, shape.labels, shape.nodes, shape.target,
    num_nonnulls(
        q.max_jobs, q.max_gpus, o.max_jobs, o.max_gpus, t.max_jobs, t.max_gpus
    ) > 0 AS limited,
    lane.paused, q.paused AS queue_paused, o.paused AS owner_paused,
    q.max_jobs AS queue_max_jobs, q.max_gpus AS queue_max_gpus,
    o.max_jobs AS owner_max_jobs, o.max_gpus AS owner_max_gpus,
    t.name AS team, t.max_jobs AS team_max_jobs, t.max_gpus AS team_max_gpus,
    t.spent_at IS NOT NULL AND t.when_spent <> 'warn' AS team_paused, spending.spent_at,
    o.gpu_hours_per_month, o.cost_per_month,
    spending.gpu_hours AS used_gpu_hours, spending.cost AS used_cost,
    forge_month() + interval '1 month' AS next_month,
    used.queue_jobs, used.queue_gpus, used.owner_jobs, used.owner_gpus,
    used.team_jobs, used.team_gpus,
    o.weight,
    coalesce((forge_shares(ARRAY[lane.owner]) ->> lane.owner)::float8, 0) AS share,
    coalesce(lease.attempt, ready.attempt, scheduled.attempt, held.attempt) AS attempt,
    coalesce(lease.failures, ready.failures, scheduled.failures) AS failures,
    coalesce(lease.losses, ready.losses, scheduled.losses) AS losses,
    coalesce(lease.preemptions, ready.preemptions, scheduled.preemptions) AS preemptions,
    scheduled.run_at, forge_now() AS now,
    ARRAY(
        SELECT jsonb_build_object('job_id', needs_id, 'kind', kind) FROM dependency
        -- By `met IS NULL`, a plan may read those of all jobs.
        WHERE dependency.job_id = held.job_id AND num_nulls(met) = 1
        ORDER BY needs_id
    ) AS needs,
    forge_parts(job.owner, job.bundle_digest, job.spec) AS parts,
    forge_longest(job.id) AS longest_s,
    job.spec ->> 'same' AS same, job.spec ->> 'launcher' AS launcher,
    shape.gpus > 0 AND NOT coalesce((job.spec ->> 'mixed')::boolean, false) AS one_model,
    coalesce((job.spec ->> 'max_nodes')::integer, shape.nodes) AS max_nodes,
    -- The owner's other queues, if nobody had a job in this one before.
    CASE WHEN NOT EXISTS (
        SELECT FROM lane AS any_lane
        JOIN job AS older ON older.lane_id = any_lane.id AND older.id < job.id
        WHERE any_lane.queue = lane.queue
    ) THEN ARRAY(
        SELECT DISTINCT own.queue FROM lane AS own
        WHERE own.owner = lane.owner AND own.queue <> lane.queue
    ) END AS other_queues,
    kept.drafted, kept.drafted_s, kept.short_s,
    held.approval, job.sweep,
    coalesce(
        (SELECT cap.parallel FROM sweep_cap AS cap WHERE cap.line = held.line), held.parallel
    ) AS parallel,
    (SELECT count(*) FROM turn WHERE turn.line = held.line) AS turns,
    (
        SELECT count(*) FROM held AS other
        WHERE other.line = held.line AND other.job_id < held.job_id
    ) AS before_it,
    extract(EPOCH FROM scheduled.run_at - forge_now())::float8 AS wait_s,
    extract(EPOCH FROM forge_now() - (SELECT ticked_at FROM sweeper))::float8 AS sweeper_silent_s
FROM job
JOIN lane ON lane.id = job.lane_id
JOIN shape ON shape.id = lane.shape_id
JOIN queue AS q ON q.name = lane.queue
JOIN owner_quota AS o ON o.owner = lane.owner
LEFT JOIN team AS t ON t.name = o.team
LEFT JOIN spending ON spending.owner = lane.owner
LEFT JOIN ready
    ON ready.lane_id = job.lane_id AND ready.nice = job.nice AND ready.job_id = job.id
LEFT JOIN scheduled ON scheduled.job_id = job.id
LEFT JOIN held ON held.job_id = job.id
LEFT JOIN lease ON lease.job_id = job.id AND lease.rank = 0
CROSS JOIN LATERAL (
    SELECT
        coalesce(sum(jobs) FILTER (WHERE used_by.queue = lane.queue), 0)::integer AS queue_jobs,
        coalesce(sum(gpus) FILTER (WHERE used_by.queue = lane.queue), 0)::integer AS queue_gpus,
        coalesce(sum(jobs) FILTER (WHERE used_by.owner = lane.owner), 0)::integer AS owner_jobs,
        coalesce(sum(gpus) FILTER (WHERE used_by.owner = lane.owner), 0)::integer AS owner_gpus,
        coalesce(sum(jobs) FILTER (WHERE used_by.team = t.name), 0)::integer AS team_jobs,
        coalesce(sum(gpus) FILTER (WHERE used_by.team = t.name), 0)::integer AS team_gpus
    FROM used_by
) AS used
CROSS JOIN LATERAL (
    SELECT
        count(*)::integer AS drafted,
        extract(EPOCH FROM max(draft.until) - forge_now())::float8 AS drafted_s,
        extract(EPOCH FROM (
            SELECT forming.expected_at FROM forming WHERE forming.job_id = job.id
        ) - forge_now())::float8 AS short_s
    FROM draft
    WHERE draft.job_id = job.id AND draft.until > forge_now()
) AS kept
WHERE job.id = %(job_id)s
