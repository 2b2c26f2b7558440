-- Jobs by id as a list shows them: their states, how long the current or the last attempt has run,
-- and the last metrics of rank 0 by name. Of those that are ready, whether no online worker could run
-- them, even when idle: once for each shape, since a worker is compared with each.
WITH waiting AS (
    SELECT job.id AS job_id, lane.shape_id
    FROM job
    JOIN lane ON lane.id = job.lane_id
    JOIN ready
        ON ready.lane_id = job.lane_id AND ready.nice = job.nice AND ready.job_id = job.id
    WHERE job.id = ANY(%(job_ids)s::bigint[])
),
unserved AS MATERIALIZED (
    SELECT shape.id
    FROM shape
    WHERE shape.id IN (SELECT shape_id FROM waiting)
        AND NOT EXISTS (
            SELECT FROM worker WHERE worker.status <> 'offline' AND forge_serves(shape, worker)
        )
)
SELECT
    job_status.*,
    CASE WHEN job_status.state = 'ready' THEN forge_kept(job_status.job_id) ELSE 0 END AS kept,
    CASE
        WHEN job_status.state = 'running' THEN extract(EPOCH FROM forge_now() - job_status.started_at)
        WHEN job_status.finished_at IS NOT NULL THEN past.ran_s
    END::float8 AS ran_s,
    CASE
        WHEN job_status.state = 'running' OR job_status.finished_at IS NOT NULL
            THEN coalesce(said.values, '{}')
        ELSE '{}'
    END AS metrics,
    EXISTS (
        SELECT FROM waiting JOIN unserved ON unserved.id = waiting.shape_id
        WHERE waiting.job_id = job_status.job_id
    ) AS unservable
FROM job_status
LEFT JOIN LATERAL (
    SELECT extract(
        EPOCH FROM max(attempt.finished_at - coalesce(attempt.started_at, attempt.claimed_at))
    ) AS ran_s
    FROM attempt
    WHERE attempt.job_id = job_status.job_id AND attempt.attempt = job_status.attempt
) AS past ON true
LEFT JOIN LATERAL (
    -- A job may write anything, so long names are left out; a few of the others are shown.
    SELECT jsonb_object_agg(kept.key, kept.last) AS values
    FROM (
        SELECT DISTINCT ON (entry.key) entry.key, entry.value -> 4 AS last
        FROM metric_span CROSS JOIN LATERAL jsonb_each(metric_span.values) AS entry
        WHERE metric_span.job_id = job_status.job_id AND metric_span.rank = 0
            AND metric_span.span = -1
            AND length(entry.key) <= 40 AND entry.key <> 'progress'
        ORDER BY entry.key, metric_span.token DESC
    ) AS kept
) AS said ON true
WHERE job_status.job_id = ANY(%(job_ids)s::bigint[])
