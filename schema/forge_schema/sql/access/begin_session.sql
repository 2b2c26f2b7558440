-- Begins a session: a key whose text nobody has, for a person or for another key, whose end is its
-- end too. The id is random, so a repeated call finds its own row. Sessions that ended a day ago go.
WITH ended AS (
    DELETE FROM api_key
    WHERE acts_for IS NOT NULL AND expires_at < forge_now() - interval '1 day'
),
made AS (
    INSERT INTO api_key (id, owner, role, name, hash, created_at, expires_at, acts_for, everyone)
    VALUES (
        %(id)s, %(owner)s, %(role)s, %(name)s, %(hash)s, forge_now(),
        forge_now() + %(lasts)s::interval, %(actor)s, %(everyone)s
    )
    ON CONFLICT (id) DO NOTHING
    RETURNING id
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT
        forge_now(), %(actor)s, 'login',
        jsonb_build_object('session', id, 'address', %(address)s::text)
    FROM made
)
SELECT id FROM made
