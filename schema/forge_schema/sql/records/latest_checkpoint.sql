-- The newest complete checkpoint of a job that is not passed over.
SELECT key, attempt, number, files, bytes
FROM forge_complete_checkpoints(%(job_id)s)
WHERE passed_over IS NULL
ORDER BY token DESC, number DESC
LIMIT 1
