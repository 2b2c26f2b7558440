-- Takes or keeps the lead of all senders, if there is anything to send for, and returns those
-- notifications that have something to send now, the longest waiting first. None while another one
-- leads, until `lasts` after it was last here. A clock may have been set back.
-- Locks: notifier.
WITH lead AS (
    UPDATE notifier
    SET led_by = %(sender)s::uuid, lead_until = forge_now() + %(lasts)s::interval
    WHERE EXISTS (SELECT FROM notification)
        AND (
            led_by = %(sender)s::uuid
            OR lead_until BETWEEN forge_now() AND forge_now() + %(lasts)s::interval IS NOT TRUE
        )
    RETURNING id
)
SELECT n.id
FROM lead
CROSS JOIN notification AS n
CROSS JOIN LATERAL (
    SELECT next_at FROM delivery
    WHERE delivery.notification_id = n.id AND delivery.state = 'waiting'
    ORDER BY next_at LIMIT 1
) AS first
WHERE n.withheld IS NULL AND forge_next_try(first.next_at, n.paused_until) <= forge_now()
ORDER BY first.next_at
LIMIT %(count)s
