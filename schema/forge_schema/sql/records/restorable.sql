-- The checkpoints that a job may be restored from, best first: its own newest ones, then the one
-- that it starts from, whose key is null if it is gone.
SELECT job_id, attempt, number, key, files, bytes
FROM (
    (
        SELECT 1 AS place, job_id, token, attempt, number, key, files, bytes
        FROM checkpoint
        WHERE job_id = %(job_id)s
        ORDER BY token DESC, number DESC
        LIMIT %(count)s
    )
    UNION ALL
    SELECT
        2, job.source_job_id, job.source_token, source.attempt, job.source_number, source.key,
        source.files, source.bytes
    FROM job
    LEFT JOIN checkpoint AS source
        ON source.job_id = job.source_job_id AND source.token = job.source_token
        AND source.number = job.source_number
    WHERE job.id = %(job_id)s AND job.source_job_id IS NOT NULL
) AS found
ORDER BY place, token DESC, number DESC
