-- The finished attempts of a job, in order.
SELECT * FROM attempt_history WHERE job_id = %(job_id)s ORDER BY attempt, rank
