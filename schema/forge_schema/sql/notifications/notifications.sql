-- The notifications of some owners or of all, by name, or one of them; with their waiting and failed
-- deliveries, and why nothing is sent for them.
SELECT
    n.id, n.owner, n.name, n.kind, n.target, n.events, n.query, n.everyone, n.created_at, n.error,
    n.server, n.team, forge_why_silent(n) AS withheld,
    CASE WHEN n.paused_until > forge_now() THEN n.paused_until END AS paused_until,
    (
        SELECT count(*) FROM delivery WHERE delivery.notification_id = n.id AND state = 'waiting'
    ) AS waiting,
    (
        SELECT count(*) FROM delivery WHERE delivery.notification_id = n.id AND state = 'failed'
    ) AS failed
FROM notification AS n
WHERE (%(scope)s::text[] IS NULL OR n.owner = ANY(%(scope)s::text[]))
    AND (%(name)s::text IS NULL OR n.name = %(name)s)
ORDER BY n.owner, n.name
