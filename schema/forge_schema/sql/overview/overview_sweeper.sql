-- The time of the last sweeper's tick, and how overdue the most overdue scheduled job is, in
-- seconds. `healthy` is false once the last tick is older than a minute, or than the sweeper itself
-- allows.
SELECT
    sweeper.ticked_at,
    extract(EPOCH FROM forge_now() - sweeper.ticked_at)::double precision AS silent_s,
    coalesce(sweeper.holds_until > forge_now(), false) AS holds,
    greatest(0, coalesce(extract(EPOCH FROM forge_now() - due.run_at), 0))::double precision
        AS late_s,
    coalesce(
        sweeper.ticked_at > forge_now() - greatest(sweeper.gap, INTERVAL '1 minute'), false
    ) AS healthy
FROM sweeper
CROSS JOIN (SELECT min(run_at) AS run_at FROM scheduled) AS due
