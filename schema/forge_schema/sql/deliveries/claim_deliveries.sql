-- Takes deliveries of a notification that are due, and all that sending them needs. They are due
-- again after `lasts`, should their sender die.
-- Locks, none of which it waits for: delivery.
WITH due AS MATERIALIZED (
    SELECT delivery.id
    FROM delivery
    JOIN notification AS n ON n.id = delivery.notification_id
    WHERE delivery.notification_id = %(notification_id)s AND delivery.state = 'waiting'
        AND delivery.next_at <= forge_now()
        AND forge_next_try(delivery.next_at, n.paused_until) <= forge_now()
    ORDER BY delivery.next_at
    LIMIT CASE (SELECT kind FROM notification WHERE id = %(notification_id)s)
        WHEN 'webhook' THEN 1 ELSE %(together)s
    END
    FOR UPDATE OF delivery SKIP LOCKED
),
taken AS (
    UPDATE delivery SET tries = tries + 1, next_at = forge_now() + %(lasts)s::interval
    FROM due
    WHERE delivery.id = due.id
    RETURNING delivery.id, delivery.tries, delivery.message, delivery.at, delivery.subject
)
SELECT
    taken.id, taken.tries, taken.message, extract(EPOCH FROM forge_now())::bigint AS now,
    n.name, n.kind, n.target, n.secret, notifier.smtp_url, notifier.sender, notifier.private
FROM taken
JOIN notification AS n ON n.id = %(notification_id)s
CROSS JOIN notifier
ORDER BY taken.at, taken.subject, taken.id
