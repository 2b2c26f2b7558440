-- Has a notification send a message before all others; see `forge_next_try`. A repeat changes
-- nothing.
INSERT INTO delivery (id, notification_id, event, subject, at, state, message, next_at)
SELECT
    %(delivery_id)s::uuid, id, %(event)s, %(subject)s, forge_now(), 'waiting',
    %(message)s::jsonb || jsonb_build_object('timestamp', forge_now()), '-infinity'
FROM notification
WHERE owner = %(owner)s AND name = %(name)s
ON CONFLICT (id) DO NOTHING
