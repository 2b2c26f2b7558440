-- Creates an API key. The id is random, so a repeated call finds its own row.
WITH made AS (
    INSERT INTO api_key (
        id, owner, role, name, hash, public_key, created_at, expires_at, team, everyone,
        invitation
    )
    VALUES (
        %(id)s, %(owner)s, %(role)s, %(name)s, %(hash)s, %(public_key)s, forge_now(),
        forge_now() + %(lasts)s::interval, %(team)s, %(everyone)s, %(invitation)s
    )
    ON CONFLICT (id) DO NOTHING
    RETURNING id
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT
        forge_now(), %(actor)s, 'key_created',
        jsonb_strip_nulls(jsonb_build_object(
            'key', id, 'owner', %(owner)s::text, 'role', %(role)s::text, 'team', %(team)s::text,
            'everyone', nullif(%(everyone)s::boolean, false),
            'invitation', nullif(%(invitation)s::boolean, false)
        ))
    FROM made
)
SELECT id FROM made
