-- Replaces an API key's secret. The old one is invalid once this has committed.
WITH rotated AS (
    UPDATE api_key SET hash = %(hash)s
    WHERE id = %(id)s AND revoked_at IS NULL
    RETURNING id
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'key_rotated', jsonb_build_object('key', id) FROM rotated
)
SELECT id FROM rotated
