-- How many seconds something has waited that the sweeper should have moved: a job that is due, or
-- an expired lease. The sweeper leaves leases alone while it holds off, for one TTL after the
-- server's start, and for one more TTL if many expire together; those of workers over HTTP, until a
-- server has been back for one TTL.
-- And how long no sweeper has run, if that is longer than a minute and than the sweeper itself allows:
-- null else. Before the first tick, it is how long there has been a server.
WITH late AS (
    SELECT
        (SELECT forge_now() - min(run_at) FROM scheduled) AS job,
        (SELECT forge_now() - min(expires_at) FROM lease) - 2 * %(ttl)s::interval AS lease,
        forge_now() - pg_postmaster_start_time() AS up,
        (SELECT forge_now() - holds_until FROM sweeper) AS free,
        (SELECT forge_now() - served_since - %(ttl)s::interval FROM sweeper) AS served
)
SELECT
    coalesce(extract(EPOCH FROM greatest(
        CASE WHEN job IS NOT NULL THEN least(job, up) END,
        CASE WHEN lease IS NOT NULL THEN least(lease, up - 2 * %(ttl)s::interval, free, served) END
    ))::double precision, 0) AS seconds,
    (
        SELECT extract(EPOCH FROM least(forge_now() - coalesce(ticked_at, served_since), up))
        FROM sweeper
        WHERE least(forge_now() - coalesce(ticked_at, served_since), up)
            > greatest(gap, INTERVAL '1 minute')
    )::double precision AS silent_s
FROM late
