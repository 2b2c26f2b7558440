-- Removes a template.
WITH removed AS (
    DELETE FROM template WHERE owner = %(owner)s AND name = %(name)s RETURNING owner, name
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT
        forge_now(), %(actor)s, 'template_removed',
        jsonb_build_object('owner', owner, 'name', name)
    FROM removed
)
SELECT name FROM removed
