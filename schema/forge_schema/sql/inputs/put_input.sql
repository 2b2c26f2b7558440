-- Registers the source of an input under a name of its owner, replacing any previous one.
WITH kept AS (
    INSERT INTO registered_input (owner, name, source, updated_at)
    VALUES (%(owner)s, %(name)s, %(source)s, forge_now())
    ON CONFLICT (owner, name) DO UPDATE
    SET source = excluded.source, updated_at = excluded.updated_at
    RETURNING owner, name, source
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT
        forge_now(), %(actor)s, 'input_kept',
        jsonb_build_object('owner', owner, 'name', name, 'source', source)
    FROM kept
)
SELECT name FROM kept
