-- Deliveries of some owners' notifications or of all, the newest first, before one of them; or one.
SELECT
    delivery.id::text AS id, n.name AS notification, n.owner, delivery.event,
    CASE WHEN delivery.event NOT IN ('test', 'worker_offline') THEN subject END AS job_id,
    CASE WHEN delivery.event = 'worker_offline' THEN subject END AS worker_id,
    delivery.at, delivery.state, delivery.tries,
    CASE WHEN delivery.state = 'waiting' THEN
        greatest(delivery.at, forge_next_try(delivery.next_at, n.paused_until))
    END AS next_at,
    delivery.settled_at, delivery.error
FROM delivery
JOIN notification AS n ON n.id = delivery.notification_id
WHERE delivery.state NOT IN ('new', 'skipped')
    AND (%(delivery_id)s::uuid IS NULL OR delivery.id = %(delivery_id)s)
    AND (%(scope)s::text[] IS NULL OR n.owner = ANY(%(scope)s::text[]))
    AND (%(name)s::text IS NULL OR n.name = %(name)s)
    AND (%(state)s::text IS NULL OR delivery.state = %(state)s)
    AND (
        %(before)s::uuid IS NULL
        OR (delivery.at, delivery.id) < (
            SELECT last.at, last.id FROM delivery AS last WHERE last.id = %(before)s
        )
    )
ORDER BY delivery.at DESC, delivery.id DESC
LIMIT %(count)s
