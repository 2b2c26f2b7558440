-- Has a notification send a test before all others; see `forge_next_try`. Tests that it could not
-- send yet are given up, so that only the newest arrives. A repeat changes nothing.
WITH given_up AS (
    DELETE FROM delivery
    USING notification
    WHERE notification.owner = %(owner)s AND notification.name = %(name)s
        AND delivery.notification_id = notification.id AND delivery.event = %(event)s
        AND delivery.state = 'waiting' AND delivery.id <> %(delivery_id)s::uuid
)
INSERT INTO delivery (id, notification_id, event, subject, at, state, message, next_at)
SELECT
    %(delivery_id)s::uuid, id, %(event)s, %(subject)s, forge_now(), 'waiting',
    %(message)s::jsonb || jsonb_build_object('timestamp', forge_now()), '-infinity'
FROM notification
WHERE owner = %(owner)s AND name = %(name)s
ON CONFLICT (id) DO NOTHING
