-- When a sweeper was last here, and for how many seconds the most overdue scheduled job waits for
-- one. `healthy` is false once it is away for longer than it finds long itself, or than a minute.
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
