-- Removes a schedule. The jobs that it has submitted stay.
WITH removed AS (
    DELETE FROM schedule WHERE owner = %(owner)s AND name = %(name)s RETURNING owner, name
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT
        forge_now(), %(actor)s, 'schedule_removed',
        jsonb_build_object('owner', owner, 'name', name)
    FROM removed
)
SELECT name FROM removed
