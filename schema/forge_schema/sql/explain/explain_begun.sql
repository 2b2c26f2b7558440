-- The checkpoint of its job that an attempt began with.
SELECT from_attempt, from_number
FROM beginning
WHERE job_id = %(job_id)s AND attempt = %(attempt)s
