-- Pauses notifications whose makers may no longer see what they tell of, gives up what these have
-- not sent, and resumes those whose makers may again. The trail says so, once for each change.
-- Locks: delivery, then notification.
WITH judged AS MATERIALIZED (
    SELECT id, actor, withheld AS former, forge_why_silent(notification) AS why
    FROM notification
),
given_up AS (
    UPDATE delivery SET state = 'failed', error = judged.why, settled_at = forge_now()
    FROM judged
    WHERE delivery.notification_id = judged.id AND judged.why IS NOT NULL
        AND delivery.state = 'waiting'
    RETURNING delivery.id
),
changed AS (
    UPDATE notification AS n SET withheld = judged.why
    FROM judged
    -- Whoever keeps it meanwhile is its maker, and is judged the next time.
    WHERE n.id = judged.id AND n.actor = judged.actor
        AND n.withheld IS NOT DISTINCT FROM judged.former
        AND judged.why IS DISTINCT FROM judged.former
        AND (SELECT count(*) FROM given_up) >= 0
    RETURNING n.owner, n.name, n.withheld
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT
        forge_now(), %(actor)s,
        CASE WHEN withheld IS NULL THEN 'notification_resumed' ELSE 'notification_paused' END,
        jsonb_strip_nulls(
            jsonb_build_object('owner', owner, 'name', name, 'reason', withheld)
        )
    FROM changed
)
SELECT owner, name, withheld FROM changed
