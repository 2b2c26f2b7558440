-- A live lease, if it is this worker's, and the code and the saved image of its job.
SELECT lease.attempt, job.bundle_digest, job.spec ->> 'image_tar' AS image_tar
FROM lease JOIN job ON job.id = lease.job_id
WHERE lease.job_id = %(job_id)s AND lease.token = %(token)s AND lease.nonce = %(nonce)s
    AND lease.worker_id = %(worker_id)s
