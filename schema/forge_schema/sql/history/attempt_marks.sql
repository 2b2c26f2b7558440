-- The attempts of a job that are over, each with what its folder in the store is named by.
SELECT attempt, token, nonce FROM attempt WHERE job_id = %(job_id)s ORDER BY token
