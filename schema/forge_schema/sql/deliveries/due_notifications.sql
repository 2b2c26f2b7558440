-- The notifications that have something to send now and are not paused, the longest waiting first.
SELECT n.id
FROM notification AS n
CROSS JOIN LATERAL (
    SELECT next_at FROM delivery
    WHERE delivery.notification_id = n.id AND delivery.state = 'waiting'
    ORDER BY next_at LIMIT 1
) AS first
WHERE first.next_at <= forge_now() AND (n.paused_until IS NULL OR n.paused_until <= forge_now())
ORDER BY first.next_at
LIMIT %(count)s
