-- Revokes an API key. Idempotent: a repeated call leaves no event.
WITH before AS MATERIALIZED (
    SELECT id, revoked_at FROM api_key WHERE id = %(id)s FOR UPDATE
),
revoked AS (
    UPDATE api_key SET revoked_at = forge_now()
    FROM before
    WHERE api_key.id = before.id AND before.revoked_at IS NULL
    RETURNING api_key.id
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'key_revoked', jsonb_build_object('key', id) FROM revoked
)
SELECT id FROM before
