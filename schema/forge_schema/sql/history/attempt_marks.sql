-- The ended attempts of a job, each with the mark that names its folder in the store.
SELECT attempt, token, nonce FROM attempt WHERE job_id = %(job_id)s ORDER BY token
