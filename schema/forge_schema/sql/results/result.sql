-- The result of one rank of a job: of the attempt that counts, or of the newest one that has any.
SELECT result.job_id, result.attempt, result.token, result.values, result.created_at
FROM result
LEFT JOIN outcome ON outcome.job_id = result.job_id
WHERE result.job_id = %(job_id)s
    AND (outcome.token IS NULL OR result.attempt = outcome.attempt)
    AND (
        EXISTS (
            SELECT FROM lease
            WHERE lease.job_id = result.job_id AND lease.token = result.token
                AND lease.rank = %(rank)s
        )
        OR EXISTS (
            SELECT FROM attempt
            WHERE attempt.job_id = result.job_id AND attempt.token = result.token
                AND attempt.rank = %(rank)s
        )
    )
ORDER BY result.attempt DESC, result.token
LIMIT 1
