-- Removes a notification, with all of its deliveries.
WITH removed AS (
    DELETE FROM notification WHERE owner = %(owner)s AND name = %(name)s RETURNING owner, name
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT
        forge_now(), %(actor)s, 'notification_removed',
        jsonb_build_object('owner', owner, 'name', name)
    FROM removed
)
SELECT name FROM removed
