-- Removes a registered input. Jobs that were submitted with it have its source.
WITH removed AS (
    DELETE FROM registered_input WHERE owner = %(owner)s AND name = %(name)s RETURNING owner, name
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT
        forge_now(), %(actor)s, 'input_removed',
        jsonb_build_object('owner', owner, 'name', name)
    FROM removed
)
SELECT name FROM removed
