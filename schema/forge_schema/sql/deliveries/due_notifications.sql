-- The notifications that have something to send now, the longest waiting first.
SELECT n.id
FROM notification AS n
CROSS JOIN LATERAL (
    SELECT next_at FROM delivery
    WHERE delivery.notification_id = n.id AND delivery.state = 'waiting'
    ORDER BY next_at LIMIT 1
) AS first
WHERE forge_next_try(first.next_at, n.paused_until) <= forge_now()
ORDER BY first.next_at
LIMIT %(count)s
