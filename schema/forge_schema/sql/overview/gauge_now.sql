-- The number of leases, and of those with less than a quarter of their time left; the age of the
-- last sweeper's tick; how overdue the most overdue scheduled job is; and the number of rows set
-- aside.
SELECT
    held.leases, held.expiring,
    extract(epoch FROM forge_now() - sweeper.ticked_at)::double precision AS silent_s,
    greatest(0, coalesce(extract(epoch FROM forge_now() - due.run_at), 0))::double precision
        AS late_s,
    (SELECT count(*) FROM set_aside)::integer AS set_aside
FROM sweeper
CROSS JOIN (SELECT min(run_at) AS run_at FROM scheduled) AS due
CROSS JOIN (
    SELECT
        count(*)::integer AS leases,
        (count(*) FILTER (WHERE part.expires_at < forge_now() + %(near)s::interval))::integer
            AS expiring
    FROM (SELECT expires_at FROM lease LIMIT %(most)s) AS part
) AS held
