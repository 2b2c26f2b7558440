-- The complete checkpoints of a job, the newest first. `next` is what its next attempt begins with,
-- if there may be one: none for a job that has its outcome.
SELECT
    attempt, number, created_at, files, bytes,
    extract(epoch FROM forge_now() - created_at)::float8 AS age_s,
    row_number() OVER (ORDER BY token DESC, number DESC) = 1
    AND NOT EXISTS (SELECT FROM outcome WHERE outcome.job_id = %(job_id)s) AS next
FROM checkpoint
WHERE job_id = %(job_id)s
ORDER BY token DESC, number DESC
