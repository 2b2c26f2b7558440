-- The newest complete checkpoint of a job.
SELECT key, attempt, number, files, bytes
FROM checkpoint
WHERE job_id = %(job_id)s
ORDER BY token DESC, number DESC
LIMIT 1
