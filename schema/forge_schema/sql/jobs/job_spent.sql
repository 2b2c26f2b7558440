-- What all ended attempts of a job cost, and for how long they held GPUs; null where there is none.
SELECT sum(cost) AS cost, sum(gpu_seconds) AS gpu_seconds
FROM attempt
WHERE job_id = %(job_id)s
