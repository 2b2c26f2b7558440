-- The leases that ran out. None within one TTL of the database's own start, when the workers could
-- not have renewed; and when most leases ran out together, which speaks for a fault between the
-- workers and the database, each only after one TTL more: a renewal may still save it.
WITH due AS MATERIALIZED (
    SELECT job_id, token, nonce, expires_at FROM lease WHERE expires_at < forge_now()
)
SELECT job_id, token, nonce
FROM due
WHERE forge_now() - pg_postmaster_start_time() > %(ttl)s
    AND (
        expires_at < forge_now() - %(ttl)s
        OR (SELECT count(*) FROM due) <= %(brake)s
        OR 2 * (SELECT count(*) FROM due) <= (SELECT count(*) FROM lease)
    )
ORDER BY job_id
LIMIT %(count)s
