-- The lanes that compete with a job: those not paused, of jobs for one worker, whose first job has at
-- least its priority. Each has the columns of `match` and `heads`, and the number of its jobs ahead
-- of the job by priority, fair share and age, counted up to `most`. While workers let short jobs pass
-- before a gang, `first` has the `nice` of the first of those, and how long each may take.
WITH competing AS MATERIALIZED (
    SELECT lane.*, head.nice, head.job_id, head.passed_at
    FROM lane
    CROSS JOIN LATERAL (
        SELECT nice, job_id, passed_at FROM ready
        WHERE lane_id = lane.id
        ORDER BY nice, job_id
        LIMIT 1
    ) AS head
    WHERE NOT lane.paused AND head.nice <= %(nice)s
),
shares AS MATERIALIZED (
    SELECT forge_shares(ARRAY(SELECT DISTINCT owner FROM competing)) AS by_owner
)
SELECT
    lane.id, lane.shape_id, shape.cpus, shape.memory_mb, shape.disk_mb, shape.gpus,
    shape.gpu_model, shape.vram_mb,
    num_nonnulls(q.max_jobs, q.max_gpus, o.max_jobs, o.max_gpus) > 0 AS limited,
    lane.owner, o.weight, shared.share, lane.nice, lane.job_id,
    extract(EPOCH FROM forge_now() - lane.passed_at)::float8 AS passed_s,
    (
        SELECT count(*) FROM (
            SELECT FROM ready
            WHERE ready.lane_id = lane.id AND ready.nice <= %(nice)s
                AND (ready.nice, shared.share, ready.job_id)
                < (%(nice)s::smallint, %(share)s::float8, %(job_id)s::bigint)
            ORDER BY ready.nice, ready.job_id
            LIMIT %(most)s
        ) AS before
    )::integer AS ahead,
    CASE WHEN EXISTS (SELECT FROM forming WHERE expected_at > forge_now()) THEN ARRAY(
        SELECT jsonb_build_array(one.nice, forge_longest(one.job_id))
        FROM (
            SELECT ready.nice, ready.job_id FROM ready
            WHERE ready.lane_id = lane.id
            ORDER BY ready.nice, ready.job_id
            LIMIT %(looks)s
        ) AS one
        WHERE (one.nice, shared.share, one.job_id)
            < (%(nice)s::smallint, %(share)s::float8, %(job_id)s::bigint)
        ORDER BY one.nice, one.job_id
    ) ELSE '{}' END AS first
FROM competing AS lane
JOIN shape ON shape.id = lane.shape_id AND shape.nodes = 1
JOIN queue AS q ON q.name = lane.queue
JOIN owner_quota AS o ON o.owner = lane.owner
CROSS JOIN shares
CROSS JOIN LATERAL (
    SELECT coalesce((shares.by_owner ->> lane.owner)::float8, 0) AS share
) AS shared
ORDER BY lane.id
