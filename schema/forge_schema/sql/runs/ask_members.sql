-- Asks the other members of a run to stop, because this one is about to. Idempotent. The caller holds
-- the run's lock.
-- Locks: lease by rank.
WITH others AS MATERIALIZED (
    SELECT lease.job_id, lease.rank
    FROM lease AS own JOIN lease
        ON lease.job_id = own.job_id AND lease.attempt = own.attempt AND lease.rank <> own.rank
    WHERE own.job_id = %(job_id)s AND own.token = %(token)s AND own.nonce = %(nonce)s
        AND own.over IS NULL AND own.nodes > 1
        AND lease.asked IS NULL AND lease.over IS NULL
    ORDER BY lease.rank
    FOR NO KEY UPDATE OF lease
),
asked AS (
    UPDATE lease SET asked = 'ended' FROM others
    WHERE lease.job_id = others.job_id AND lease.rank = others.rank
    RETURNING lease.job_id, lease.worker_id
)
SELECT job_id, pg_notify('forge', 'asked:' || worker_id) FROM asked
