-- Has failed deliveries tried again from the start: some by id, or all of an owner's notification.
WITH chosen AS (
    SELECT n.id FROM notification AS n
    WHERE (%(owner)s::text IS NULL OR n.owner = %(owner)s)
        AND (%(name)s::text IS NULL OR n.name = %(name)s)
),
again AS (
    UPDATE delivery SET
        state = 'waiting', tries = 0, next_at = forge_now(), settled_at = NULL
    FROM chosen
    WHERE delivery.notification_id = chosen.id AND delivery.state = 'failed'
        AND (%(ids)s::uuid[] IS NULL OR delivery.id = ANY(%(ids)s::uuid[]))
    RETURNING delivery.notification_id
),
woken AS (
    UPDATE notification SET paused_until = NULL
    WHERE id IN (SELECT notification_id FROM again)
)
SELECT count(*) AS retried FROM again
