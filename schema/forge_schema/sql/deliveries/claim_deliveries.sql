-- Takes deliveries of a notification that are due, and all that sending them needs. They are due
-- again after `lasts`, should their sender die. A batch that was tried is tried again as it was: its
-- receiver may have accepted it, and knows it by its id. A test goes alone. Nothing is taken once the
-- maker of the notification may no longer see what it tells of.
-- Locks, none of which it waits for: delivery.
WITH first AS MATERIALIZED (
    SELECT
        oldest.batch,
        CASE WHEN n.kind = 'webhook' OR oldest.event = 'test' THEN 1 ELSE %(together)s END AS most
    FROM notification AS n
    CROSS JOIN LATERAL (
        SELECT event, batch, next_at FROM delivery
        WHERE delivery.notification_id = n.id AND delivery.state = 'waiting'
        ORDER BY next_at LIMIT 1
    ) AS oldest
    WHERE n.id = %(notification_id)s
        AND forge_next_try(oldest.next_at, n.paused_until) <= forge_now()
        AND forge_why_silent(n) IS NULL
),
due AS MATERIALIZED (
    SELECT delivery.id
    FROM delivery
    WHERE delivery.notification_id = %(notification_id)s AND delivery.state = 'waiting'
        AND delivery.next_at <= forge_now()
        AND delivery.batch IS NOT DISTINCT FROM (SELECT batch FROM first)
    ORDER BY delivery.next_at
    LIMIT (SELECT coalesce(max(most), 0) FROM first)
    FOR UPDATE SKIP LOCKED
),
taken AS (
    UPDATE delivery SET
        tries = tries + 1, next_at = forge_now() + %(lasts)s::interval,
        batch = coalesce(batch, (SELECT id FROM due LIMIT 1))
    FROM due
    WHERE delivery.id = due.id
    RETURNING delivery.id, delivery.tries, delivery.message, delivery.at, delivery.subject
)
SELECT
    taken.id, taken.tries, taken.message, extract(EPOCH FROM forge_now())::bigint AS now,
    n.name, n.kind, n.target, n.secret, notifier.smtp_url, notifier.sender, notifier.allow
FROM taken
JOIN notification AS n ON n.id = %(notification_id)s
CROSS JOIN notifier
ORDER BY taken.at, taken.subject, taken.id
