-- The complete checkpoints of a job, the newest first; `next` is what its next attempt begins with.
SELECT
    attempt, number, created_at, files, bytes,
    extract(epoch FROM forge_now() - created_at)::float8 AS age_s,
    row_number() OVER (ORDER BY token DESC, number DESC) = 1 AS next
FROM checkpoint
WHERE job_id = %(job_id)s
ORDER BY token DESC, number DESC
