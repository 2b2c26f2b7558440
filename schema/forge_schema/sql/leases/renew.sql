-- Renews every lease that a worker lists, and records that it was seen and its new status:
-- `forge_status` decides by its leases whether it is idle or busy. A worker that drains on its own
-- reports that in its condition. A lease that is not listed is left to expire. Returns the worker's
-- command, in how many seconds it takes part in gangs again if others could not reach it, and whether
-- it is suspected, and so takes one job at a time.
-- Most heartbeats say nothing new, and write only that the worker was seen: locking the row first
-- would be a second record, and a condition is large. Its measures change all the time and are
-- written every two minutes, anything else at once.
-- A renewal with a shorter TTL does not shorten a lease, unless the clock was ahead when it was last
-- renewed or claimed.
-- Locks: worker, then lease in the order given.
WITH said AS (
    SELECT
        '{cpu_percent,memory_percent,memory_free_mb,disk_free_mb,gpus}'::text[] AS measures,
        CASE
            WHEN %(condition)s::jsonb ->> 'draining' = 'true' THEN 'draining'
            WHEN %(status)s = 'busy' THEN 'idle'
            ELSE %(status)s
        END::worker_status AS status
),
nothing_new AS (
    UPDATE worker
    SET last_seen_at = forge_now()
    FROM said
    WHERE worker.id = %(worker_id)s AND worker.boot_id = %(boot_id)s
        AND worker.status = CASE WHEN worker.command IS NULL THEN said.status ELSE 'draining' END
        AND worker.connected_at IS NOT NULL AND worker.last_seen_at <= forge_now()
        AND (
            %(condition)s::jsonb IS NULL
            OR (
                worker.condition - said.measures = %(condition)s::jsonb - said.measures
                AND date_bin('2 minutes', worker.last_seen_at, '2000-01-01')
                    = date_bin('2 minutes', forge_now(), '2000-01-01')
            )
        )
    RETURNING worker.id, worker.command, worker.gangs_after, worker.suspected_for
),
before AS MATERIALIZED (
    SELECT id, status, last_seen_at > forge_now() AS ahead FROM worker
    WHERE id = %(worker_id)s AND boot_id = %(boot_id)s
        AND NOT EXISTS (SELECT FROM nothing_new)
    FOR NO KEY UPDATE
),
something_new AS (
    UPDATE worker
    SET last_seen_at = forge_now(),
        connected_at = coalesce(connected_at, forge_now()),
        condition = coalesce(%(condition)s::jsonb, condition),
        status = CASE WHEN command IS NULL THEN said.status ELSE 'draining' END
    FROM before, said
    WHERE worker.id = before.id
    RETURNING
        worker.id, worker.command, worker.gangs_after, worker.suspected_for, worker.status,
        before.status AS was, before.ahead
),
seen AS (
    SELECT id, command, gangs_after, suspected_for, false AS ahead FROM nothing_new
    UNION ALL
    SELECT id, command, gangs_after, suspected_for, ahead FROM something_new
),
told AS (
    INSERT INTO event (at, actor, action, worker_id, detail)
    SELECT
        forge_now(), 'worker:' || id, 'status_changed', id,
        jsonb_build_object('from', was, 'to', status)
    FROM something_new WHERE status <> was
),
held AS (
    SELECT * FROM unnest(
        %(job_ids)s::bigint[], %(tokens)s::bigint[], %(nonces)s::uuid[]
    ) AS h (job_id, token, nonce)
),
renewed AS (
    UPDATE lease
    SET expires_at = CASE
            WHEN seen.ahead OR claimed_at > forge_now() THEN forge_now() + %(ttl)s
            ELSE greatest(forge_now() + %(ttl)s, expires_at)
        END,
        -- A lease may not end before it began.
        claimed_at = least(claimed_at, forge_now())
    FROM seen, held
    WHERE lease.job_id = held.job_id AND lease.token = held.token AND lease.nonce = held.nonce
        AND lease.worker_id = %(worker_id)s AND lease.over IS NULL
    RETURNING lease.job_id, lease.token, lease.nonce, lease.asked, true AS found
)
SELECT
    seen.command, extract(EPOCH FROM seen.gangs_after - forge_now())::float8 AS gangs_after_s,
    seen.suspected_for IS NOT NULL AS suspected, job_id, token, nonce,
    CASE
        WHEN renewed.found IS NULL THEN 'lost'
        WHEN renewed.asked IS NULL THEN 'ok'
        ELSE renewed.asked::text
    END AS standing
FROM seen
LEFT JOIN held ON true
LEFT JOIN renewed USING (job_id, token, nonce)
