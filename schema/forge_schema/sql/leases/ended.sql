-- The stored outcomes of ended leases, for a repeated finish.
SELECT attempt.job_id, attempt.token, attempt.nonce, attempt.reason, job_status.state
FROM unnest(%(job_ids)s::bigint[], %(tokens)s::bigint[], %(nonces)s::uuid[])
    AS f (job_id, token, nonce)
JOIN attempt USING (job_id, token, nonce)
JOIN job_status USING (job_id)
