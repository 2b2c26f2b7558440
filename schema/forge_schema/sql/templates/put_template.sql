-- Stores a template of an owner, replacing any previous one.
WITH kept AS (
    INSERT INTO template (owner, name, spec, updated_at)
    VALUES (%(owner)s, %(name)s, %(spec)s, forge_now())
    ON CONFLICT (owner, name) DO UPDATE SET spec = excluded.spec, updated_at = excluded.updated_at
    RETURNING owner, name
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT
        forge_now(), %(actor)s, 'template_kept', jsonb_build_object('owner', owner, 'name', name)
    FROM kept
)
SELECT name FROM kept
