-- The result of a job: of the attempt that counts, or of the newest one that has any; of a run on
-- several machines, that of the first rank that has one.
SELECT result.job_id, result.attempt, result.token, result.values, result.created_at
FROM result
LEFT JOIN outcome ON outcome.job_id = result.job_id
WHERE result.job_id = %(job_id)s
    AND (outcome.token IS NULL OR result.attempt = outcome.attempt)
ORDER BY result.attempt DESC, result.token
LIMIT 1
