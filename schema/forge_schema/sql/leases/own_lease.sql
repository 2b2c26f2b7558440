-- A live lease, if it is this worker's: its job's bundle and saved image, the manifests of the
-- checkpoint that the job starts from, one of each rank, and the jobs that its inputs are from.
SELECT
    lease.attempt, job.bundle_digest, job.spec ->> 'image_tar' AS image_tar, job.source_job_id,
    CASE
        WHEN source.key IS NOT NULL
            THEN source.key || ARRAY(SELECT part.key FROM forge_companions(source) AS part)
    END AS source_keys,
    CASE WHEN job.spec ? 'inputs' THEN forge_input_jobs(job) ELSE '{}' END AS input_jobs
FROM lease
JOIN job ON job.id = lease.job_id
LEFT JOIN checkpoint AS source
    ON source.job_id = job.source_job_id AND source.token = job.source_token
    AND source.number = job.source_number
WHERE lease.job_id = %(job_id)s AND lease.token = %(token)s AND lease.nonce = %(nonce)s
    AND lease.worker_id = %(worker_id)s AND lease.over IS NULL
