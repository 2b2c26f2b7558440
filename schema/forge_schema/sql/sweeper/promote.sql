-- Makes scheduled jobs ready that are due; with `job_id`, only that job.
WITH due AS (
    DELETE FROM scheduled
    WHERE job_id = ANY(ARRAY(
        SELECT job_id FROM scheduled
        WHERE run_at <= forge_now()
            AND (%(job_id)s::bigint IS NULL OR job_id = %(job_id)s)
        ORDER BY run_at
        LIMIT %(count)s
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING *
),
known AS MATERIALIZED (
    SELECT due.*, forge_parts(job.owner, job.bundle_digest, job.spec) AS parts
    FROM due JOIN job ON job.id = due.job_id
),
now_ready AS (
    INSERT INTO ready (
        lane_id, nice, job_id, attempt, failures, losses, preemptions, ready_at, parts, avoids
    )
    SELECT
        lane_id, nice, job_id, attempt, failures, losses, preemptions, forge_now(), parts, avoids
    FROM known
    RETURNING lane_id, parts, avoids
),
told AS (
    INSERT INTO event (at, actor, action, job_id)
    SELECT forge_now(), %(actor)s, 'promoted', job_id FROM due
)
SELECT
    job_id,
    (
        SELECT forge_wake(
            array_agg(lane_id), 'ready', array_agg(parts::text), array_agg(avoids::text)
        )
        FROM now_ready
    )
FROM due
