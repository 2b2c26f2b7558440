-- The newest complete checkpoint of a job.
SELECT key, attempt, number, files, bytes
FROM forge_complete_checkpoints(%(job_id)s)
ORDER BY token DESC, number DESC
LIMIT 1
