-- Has a notification send a message at once, even if it is paused. A repeat changes nothing.
WITH woken AS (
    UPDATE notification SET paused_until = NULL
    WHERE owner = %(owner)s AND name = %(name)s
    RETURNING id
),
made AS (
    INSERT INTO delivery (id, notification_id, event, subject, at, state, message, next_at)
    SELECT
        %(delivery_id)s::uuid, id, %(event)s, %(subject)s, forge_now(), 'waiting',
        %(message)s::jsonb || jsonb_build_object('timestamp', forge_now()), forge_now()
    FROM woken
    ON CONFLICT (id) DO NOTHING
)
SELECT id FROM woken
