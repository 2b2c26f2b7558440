-- The leases among these that are those of members of a run on several machines.
SELECT lease.job_id, lease.token, lease.nonce
FROM unnest(%(job_ids)s::bigint[], %(tokens)s::bigint[], %(nonces)s::uuid[])
    AS f (job_id, token, nonce)
JOIN lease USING (job_id, token, nonce)
WHERE lease.nodes > 1
