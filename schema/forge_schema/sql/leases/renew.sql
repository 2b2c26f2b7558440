-- Renews every lease that a worker lists, returns the worker's command, and records that it was
-- seen and its new status: `forge_status` decides by its leases whether it is idle or busy. A
-- worker that drains on its own reports that in its condition, which earlier servers accept too. A
-- lease that is not listed is left to expire.
-- Locks: worker, then lease in the order given.
WITH before AS MATERIALIZED (
    SELECT id, status FROM worker
    WHERE id = %(worker_id)s AND boot_id = %(boot_id)s
    FOR NO KEY UPDATE
),
seen AS (
    UPDATE worker
    SET last_seen_at = forge_now(),
        connected_at = coalesce(connected_at, forge_now()),
        condition = coalesce(%(condition)s::jsonb, condition),
        status = CASE
            WHEN command IS NOT NULL OR %(condition)s::jsonb ->> 'draining' = 'true' THEN 'draining'
            WHEN %(status)s = 'busy' THEN 'idle'
            ELSE %(status)s
        END::worker_status
    FROM before
    WHERE worker.id = before.id
    RETURNING worker.id, worker.command, worker.status, before.status AS was
),
told AS (
    INSERT INTO event (at, actor, action, worker_id, detail)
    SELECT
        forge_now(), 'worker:' || id, 'status_changed', id,
        jsonb_build_object('from', was, 'to', status)
    FROM seen WHERE status <> was
),
held AS (
    SELECT * FROM unnest(
        %(job_ids)s::bigint[], %(tokens)s::bigint[], %(nonces)s::uuid[]
    ) AS h (job_id, token, nonce)
),
renewed AS (
    UPDATE lease
    SET expires_at = greatest(forge_now() + %(ttl)s, expires_at)
    FROM seen, held
    WHERE lease.job_id = held.job_id AND lease.token = held.token AND lease.nonce = held.nonce
        AND lease.worker_id = %(worker_id)s
    RETURNING lease.job_id, lease.token, lease.nonce, lease.asked, true AS found
)
SELECT
    seen.command, job_id, token, nonce,
    CASE
        WHEN renewed.found IS NULL THEN 'lost'
        WHEN renewed.asked IS NULL THEN 'ok'
        ELSE renewed.asked::text
    END AS standing
FROM seen
LEFT JOIN held ON true
LEFT JOIN renewed USING (job_id, token, nonce)
