-- Revokes an API key, ends a session, or ends all sessions of a person, by `oidc:` and the person's
-- id. What a person made goes on no more once somebody else has ended one of the person's sessions,
-- or all, until the issuer names the person anew. Idempotent: a repeated call leaves no event.
-- Locks: api_key by id, then standing.
WITH before AS MATERIALIZED (
    SELECT id, revoked_at FROM api_key
    WHERE id = %(id)s OR (starts_with(%(id)s::text, 'oidc:') AND acts_for = %(id)s)
    ORDER BY id
    FOR UPDATE
),
revoked AS (
    UPDATE api_key SET revoked_at = forge_now()
    FROM before
    WHERE api_key.id = before.id AND before.revoked_at IS NULL
    RETURNING api_key.id, api_key.acts_for
),
ended AS (
    UPDATE standing SET ended_at = forge_now()
    WHERE (actor = %(id)s OR actor IN (SELECT acts_for FROM revoked))
        AND actor <> %(actor)s AND (ended_at IS NULL OR ended_at < at)
    RETURNING actor
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'key_revoked', jsonb_build_object('key', gone.id)
    FROM (
        SELECT id FROM revoked
        UNION ALL
        SELECT actor FROM ended WHERE actor = %(id)s
    ) AS gone
)
SELECT id FROM before
UNION ALL
SELECT actor FROM standing WHERE actor = %(id)s
LIMIT 1
