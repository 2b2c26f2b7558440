-- The complete checkpoints of a job, newest first. `next` is the one that the next attempt would
-- resume from; none if the job has ended.
SELECT
    attempt, number, created_at, files, bytes,
    extract(epoch FROM forge_now() - created_at)::float8 AS age_s,
    row_number() OVER (ORDER BY token DESC, number DESC) = 1
    AND NOT EXISTS (SELECT FROM outcome WHERE outcome.job_id = %(job_id)s) AS next
FROM checkpoint
WHERE job_id = %(job_id)s
ORDER BY token DESC, number DESC
