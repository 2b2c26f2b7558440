-- The lanes that a claim may look at, with what their jobs need, their owner's share, and their
-- first job; that says how long ago a worker first passed it by.
-- Of more than a `few` lanes in all, only those that have jobs, and those `besides`.
-- `asked`, in the first row, has the workers that are to drain or stop, and so take no jobs; `drafts`
-- those that keep room for a gang, each with its lane and `nice`, and the seconds until it should form.
WITH count AS MATERIALIZED (
    SELECT count(*) <= %(few)s AS few FROM (SELECT FROM lane LIMIT %(few)s + 1) AS these
),
open AS MATERIALIZED (
    SELECT lane.* FROM count JOIN lane ON count.few
    UNION ALL
    SELECT lane.*
    FROM count
    CROSS JOIN LATERAL (
        SELECT lane_id FROM forge_waiting_lanes() AS waiting (lane_id) WHERE NOT count.few
        UNION
        SELECT unnest(%(besides)s::integer[])
    ) AS these
    JOIN lane ON lane.id = these.lane_id AND NOT count.few
),
shares AS MATERIALIZED (
    SELECT forge_shares(ARRAY(SELECT DISTINCT owner FROM open)) AS by_owner
)
SELECT
    lane.id, lane.shape_id, shape.cpus, shape.memory_mb, shape.disk_mb, shape.gpus,
    shape.gpu_model, shape.vram_mb,
    num_nonnulls(q.max_jobs, q.max_gpus, o.max_jobs, o.max_gpus) > 0 AS limited,
    lane.owner, o.weight, coalesce((shares.by_owner ->> lane.owner)::float8, 0) AS share,
    head.nice, head.job_id,
    extract(EPOCH FROM forge_now() - head.passed_at)::float8 AS passed_s,
    CASE WHEN row_number() OVER (ORDER BY lane.id) = 1 THEN
        ARRAY(SELECT worker.id FROM worker WHERE worker.command IS NOT NULL)
    END AS asked,
    CASE WHEN row_number() OVER (ORDER BY lane.id) = 1 THEN (
        SELECT jsonb_object_agg(draft.worker_id, jsonb_build_array(
            draft.lane_id, draft.nice,
            extract(EPOCH FROM forming.expected_at - forge_now())::float8
        ))
        FROM draft LEFT JOIN forming ON forming.job_id = draft.job_id
        WHERE draft.until > forge_now()
    ) END AS drafts
FROM open AS lane
JOIN shape ON shape.id = lane.shape_id
JOIN queue AS q ON q.name = lane.queue
JOIN owner_quota AS o ON o.owner = lane.owner
CROSS JOIN shares
LEFT JOIN LATERAL (
    SELECT ready.nice, ready.job_id, ready.passed_at FROM ready
    WHERE ready.lane_id = lane.id AND NOT lane.paused
    ORDER BY ready.nice, ready.job_id
    LIMIT 1
) AS head ON true
ORDER BY lane.id
