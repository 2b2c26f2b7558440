-- The complete checkpoints of a job, newest first, each with what all ranks have stored of it. `next`
-- is the one that the next attempt would begin with; none if the job has ended.
SELECT
    kept.attempt, kept.number, kept.step, kept.created_at, kept.passed_over,
    kept.files + parts.files AS files, kept.bytes + parts.bytes AS bytes,
    extract(epoch FROM forge_now() - kept.created_at)::float8 AS age_s,
    kept.passed_over IS NULL
    AND row_number() OVER (
        PARTITION BY kept.passed_over IS NULL ORDER BY kept.token DESC, kept.number DESC
    ) = 1
    AND NOT EXISTS (SELECT FROM outcome WHERE outcome.job_id = %(job_id)s) AS next
FROM forge_complete_checkpoints(%(job_id)s) AS kept
CROSS JOIN LATERAL (
    SELECT coalesce(sum(files), 0)::integer AS files, coalesce(sum(bytes), 0)::bigint AS bytes
    FROM forge_companions(kept)
) AS parts
ORDER BY kept.token DESC, kept.number DESC
