-- One job: its state, and what was asked for.
SELECT job_status.*, job.spec, job.timeout_s, job.max_failures, job.max_losses, job.max_preemptions
FROM job_status JOIN job ON job.id = job_status.job_id
WHERE job_status.job_id = %(job_id)s
