-- The result of a job: of the attempt that counts, or of the newest one that has any.
SELECT result.job_id, result.attempt, result.token, result.values, result.created_at
FROM result
LEFT JOIN outcome ON outcome.job_id = result.job_id
WHERE result.job_id = %(job_id)s
    AND (outcome.token IS NULL OR outcome.token = result.token)
ORDER BY result.token DESC
LIMIT 1
