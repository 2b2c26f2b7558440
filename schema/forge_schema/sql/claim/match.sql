-- The lanes that a claim may look at, with what their jobs need, their owner's share, and their
-- first job; that says how long ago a worker first passed it by. Lanes of the shapes `skipped` are left
-- out.
-- Of more than a `few` lanes, only those that have jobs, those `besides`, and those of gangs that
-- workers keep room for.
-- `asked`, in the first row, has the workers that take no jobs: they are to drain or stop, or rest; `drafts`
-- those that keep room for a gang, each with its lane and `nice`, the seconds until it should form, and
-- its job.
WITH RECURSIVE wanted AS MATERIALIZED (
    SELECT ARRAY(
        SELECT these.id
        FROM (
            SELECT lane.id FROM shape JOIN lane ON lane.shape_id = shape.id
            WHERE shape.id NOT IN (SELECT unnest(%(skipped)s::integer[]))
            LIMIT %(leapt)s + 1
        ) AS these
        ORDER BY these.id
    ) AS lanes
),
count AS MATERIALIZED (
    SELECT
        lanes, cardinality(lanes) <= %(few)s AS few, cardinality(lanes) <= %(leapt)s AS leaps
    FROM wanted
),
-- The first job of each lane that has one, found by jumping from lane to lane. Unless there are very
-- many, it leaps over the lanes that are skipped.
heads AS (
    SELECT 0 AS lane_id, 0::smallint AS nice, 0::bigint AS job_id, NULL::timestamptz AS passed_at
    FROM count
    WHERE NOT few
    UNION ALL
    SELECT next.* FROM heads CROSS JOIN count CROSS JOIN LATERAL (
        SELECT lane_id, nice, job_id, passed_at FROM ready
        WHERE ready.lane_id >= CASE
            WHEN count.leaps THEN count.lanes[width_bucket(heads.lane_id, count.lanes) + 1]
            ELSE heads.lane_id + 1
        END
        ORDER BY ready.lane_id, ready.nice, ready.job_id
        LIMIT 1
    ) AS next
),
open AS MATERIALIZED (
    SELECT lane.*, heads.nice, heads.job_id, heads.passed_at
    FROM heads JOIN lane ON lane.id = heads.lane_id
    WHERE lane.shape_id NOT IN (SELECT unnest(%(skipped)s::integer[]))
    UNION ALL
    SELECT lane.*, head.nice, head.job_id, head.passed_at
    FROM (
        SELECT unnest(lanes) FROM count WHERE few
        UNION
        SELECT unnest(%(besides)s::integer[])
        UNION
        SELECT draft.lane_id FROM draft WHERE draft.until > forge_now()
    ) AS one (lane_id)
    JOIN lane ON lane.id = one.lane_id
    LEFT JOIN LATERAL (
        SELECT ready.nice, ready.job_id, ready.passed_at FROM ready
        WHERE ready.lane_id = lane.id
        ORDER BY ready.nice, ready.job_id
        LIMIT 1
    ) AS head ON true
    -- A gang's lane is skipped too, and is asked for here: the first part left it out.
    WHERE one.lane_id NOT IN (SELECT heads.lane_id FROM heads)
        OR lane.shape_id IN (SELECT unnest(%(skipped)s::integer[]))
),
shares AS MATERIALIZED (
    SELECT forge_shares(ARRAY(SELECT DISTINCT owner FROM open)) AS by_owner
),
-- Sorted only now: the object of all shares would be sorted along with each lane.
found AS MATERIALIZED (
    SELECT
        lane.id, lane.shape_id, shape.cpus, shape.memory_mb, shape.disk_mb, shape.gpus,
        shape.gpu_model, shape.vram_mb,
        num_nonnulls(
            q.max_jobs, q.max_gpus, o.max_jobs, o.max_gpus, t.max_jobs, t.max_gpus
        ) > 0 AS limited,
        lane.owner, o.weight,
        coalesce(((SELECT by_owner FROM shares) ->> lane.owner)::float8, 0) AS share,
        CASE WHEN NOT lane.paused THEN lane.nice END AS nice,
        CASE WHEN NOT lane.paused THEN lane.job_id END AS job_id,
        CASE WHEN NOT lane.paused THEN
            extract(EPOCH FROM forge_now() - lane.passed_at)::float8
        END AS passed_s
    FROM open AS lane
    JOIN shape ON shape.id = lane.shape_id
    JOIN queue AS q ON q.name = lane.queue
    JOIN owner_quota AS o ON o.owner = lane.owner
    LEFT JOIN team AS t ON t.name = o.team
)
SELECT
    found.*,
    CASE WHEN row_number() OVER (ORDER BY found.id) = 1 THEN
        ARRAY(
            SELECT worker.id FROM worker WHERE worker.command IS NOT NULL
            UNION ALL
            SELECT worker.id FROM worker WHERE worker.suspected_for IS NOT NULL AND forge_rests(worker)
        )
    END AS asked,
    CASE WHEN row_number() OVER (ORDER BY found.id) = 1 THEN (
        SELECT jsonb_object_agg(draft.worker_id, jsonb_build_array(
            draft.lane_id, draft.nice,
            extract(EPOCH FROM forming.expected_at - forge_now())::float8, draft.job_id
        ))
        FROM draft LEFT JOIN forming ON forming.job_id = draft.job_id
        WHERE draft.until > forge_now()
    ) END AS drafts
FROM found
ORDER BY found.id
