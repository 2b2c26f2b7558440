-- Records how a try to send deliveries ended: without an error they are sent. Otherwise they are
-- tried again after a pause that grows with their tries, until these are used up. The notification
-- has a short pause too, which doubles with each failure in a row, so that a receiver that is down
-- is not asked by every message at once. A try that took so long that another one has begun says
-- nothing about that one, unless it succeeded.
-- Locks: delivery, then notification.
WITH tried AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(tries)s::smallint[]) AS one (id, tries)
),
recorded AS (
    UPDATE delivery SET
        state = CASE
            WHEN %(error)s::text IS NULL THEN 'sent'
            WHEN delivery.tries > cardinality(%(pauses)s::integer[]) THEN 'failed'
            ELSE 'waiting'
        END,
        error = %(error)s,
        settled_at = CASE
            WHEN %(error)s::text IS NULL OR delivery.tries > cardinality(%(pauses)s::integer[])
                THEN forge_now()
        END,
        next_at = forge_now() + make_interval(
            secs => greatest(coalesce((%(pauses)s::integer[])[delivery.tries], 0), %(least_s)s)
        )
    FROM tried
    WHERE delivery.id = tried.id AND delivery.state = 'waiting'
        AND (%(error)s::text IS NULL OR delivery.tries = tried.tries)
    RETURNING delivery.notification_id
)
UPDATE notification SET
    error = %(error)s,
    failures = CASE WHEN %(error)s::text IS NULL THEN 0 ELSE least(failures + 1, 100) END,
    paused_until = CASE WHEN %(error)s::text IS NOT NULL THEN
        forge_now() + make_interval(
            secs => greatest(
                least(%(first_s)s * 2 ^ failures, %(longest_s)s), %(least_s)s
            )
        )
    END
WHERE id IN (SELECT notification_id FROM recorded)
