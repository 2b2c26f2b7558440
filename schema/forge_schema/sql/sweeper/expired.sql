-- The expired leases, unless the sweepers hold off.
-- The caller's tick is recorded. If the previous one is too old, or if the server started since, no
-- worker could renew either: for one TTL from now no lease is ended. The slower one of the last
-- sweeper and this one sets what is too old.
-- Consecutive gaps are the sweepers' pace rather than outages, so only a limited number of them
-- count. A shorter pause resets the number, but only when nothing is held any more and expired
-- leases have been ended: holding off always ends, whatever the timing of ticks.
-- If most leases are silent together, a fault between workers and database is likely, and each is
-- ended one TTL later: a renewal may still save it. A lease is silent in the last third of its TTL,
-- since leases cut off together expire one by one, in the order of their renewals.
-- A worker over HTTP renews through a server. While there is none, and until one has been there for
-- one TTL, such a worker's lease stays, for `unserved` at most. Servers that are away for longer
-- are considered gone for good.
-- Locks: sweeper.
WITH here AS (
    INSERT INTO sweeper AS s (id, ticked_at, gap, holds_until)
    VALUES (1, forge_now(), %(gap)s, forge_now() + %(ttl)s::interval)
    ON CONFLICT (id) DO UPDATE SET (ticked_at, gap, gaps, holds_until) = (
        SELECT
            forge_now(),
            %(gap)s::interval,
            CASE
                WHEN away THEN least(s.gaps + 1, %(heeded)s)
                WHEN s.holds_until > forge_now() THEN s.gaps
                ELSE 0
            END,
            CASE
                WHEN away AND s.gaps < %(heeded)s THEN forge_now() + %(ttl)s::interval
                -- A clock set back must not prolong the hold.
                ELSE least(
                    coalesce(s.holds_until, forge_now()), forge_now() + %(ttl)s::interval
                )
            END
        FROM (
            SELECT coalesce(
                s.ticked_at < forge_now() - greatest(%(gap)s::interval, s.gap)
                OR s.ticked_at < pg_postmaster_start_time(),
                true
            ) AS away
        ) AS before
    )
    RETURNING
        holds_until > forge_now() AS holds,
        coalesce(
            served_at > forge_now() - %(unserved)s::interval
            AND (
                served_at < forge_now() - %(ttl)s::interval / 4
                OR served_since > forge_now() - %(ttl)s::interval
            ),
            false
        ) AS unserved
),
due AS MATERIALIZED (
    SELECT
        job_id, token, nonce, expires_at,
        expires_at > forge_now() - %(unserved)s::interval
        AND EXISTS (
            SELECT FROM worker WHERE worker.id = lease.worker_id AND worker.token_hash IS NOT NULL
        ) AS over_http
    FROM lease WHERE expires_at < forge_now()
),
counted AS MATERIALIZED (
    SELECT
        count(*) AS leases,
        count(*) FILTER (WHERE expires_at < forge_now() + %(ttl)s::interval / 3) AS silent
    FROM lease
)
SELECT here.holds, due.job_id, due.token, due.nonce
FROM here
CROSS JOIN counted
LEFT JOIN due ON NOT here.holds
    AND NOT (here.unserved AND due.over_http)
    AND (
        due.expires_at < forge_now() - %(ttl)s::interval
        OR counted.silent <= %(brake)s
        OR 2 * counted.silent <= counted.leases
    )
ORDER BY due.job_id, due.token
LIMIT %(count)s
