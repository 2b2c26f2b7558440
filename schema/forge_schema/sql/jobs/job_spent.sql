-- What a job has cost so far, and the GPU time of its ended attempts; null if that is none.
SELECT forge_job_cost(%(job_id)s) AS cost, sum(gpu_seconds) AS gpu_seconds
FROM attempt
WHERE job_id = %(job_id)s
