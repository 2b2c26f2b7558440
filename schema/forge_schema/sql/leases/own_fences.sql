-- The number of given leases, live or ended, that are or were this worker's.
SELECT count(*) AS own
FROM unnest(%(job_ids)s::bigint[], %(tokens)s::bigint[], %(nonces)s::uuid[])
    AS f (job_id, token, nonce)
WHERE EXISTS (
        SELECT FROM lease
        WHERE lease.job_id = f.job_id AND lease.token = f.token AND lease.nonce = f.nonce
            AND lease.worker_id = %(worker_id)s
    )
    OR EXISTS (
        SELECT FROM attempt
        WHERE attempt.job_id = f.job_id AND attempt.token = f.token AND attempt.nonce = f.nonce
            AND attempt.worker_id = %(worker_id)s
    )
