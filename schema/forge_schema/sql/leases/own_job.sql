-- A job, if this worker holds a lease of it.
SELECT job_id FROM lease
WHERE job_id = %(job_id)s AND worker_id = %(worker_id)s AND over IS NULL
LIMIT 1
