-- The cost and GPU time of a job's ended attempts; null if it has none.
SELECT sum(cost) AS cost, sum(gpu_seconds) AS gpu_seconds
FROM attempt
WHERE job_id = %(job_id)s
