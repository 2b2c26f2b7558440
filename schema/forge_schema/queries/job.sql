-- One job: its state, what was asked for, and the checkpoint of another job that it started from.
SELECT
    job_status.*, job.spec, job.timeout_s, job.max_failures, job.max_losses, job.max_preemptions,
    job.source_job_id, job.source_number,
    (
        SELECT attempt FROM checkpoint
        WHERE job_id = job.source_job_id AND token = job.source_token
        LIMIT 1
    ) AS source_attempt
FROM job_status JOIN job ON job.id = job_status.job_id
WHERE job_status.job_id = %(job_id)s
