-- Deliveries of which it is not known yet whether their notification's query chooses the job.
SELECT
    delivery.id, delivery.event, delivery.subject, delivery.at, delivery.facts,
    delivery.notification_id, n.query, n.owner, n.server,
    CASE
        WHEN n.everyone THEN NULL
        WHEN n.team IS NULL THEN ARRAY[n.owner]
        ELSE ARRAY(SELECT owner FROM owner_quota WHERE owner_quota.team = n.team)
    END AS scope
FROM delivery
JOIN notification AS n ON n.id = delivery.notification_id
WHERE delivery.state = 'new'
ORDER BY delivery.notification_id, delivery.id
LIMIT %(count)s
