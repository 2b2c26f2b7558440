-- Ends a session.
WITH ended AS (
    UPDATE api_key SET revoked_at = forge_now()
    WHERE id = %(id)s AND acts_for IS NOT NULL AND revoked_at IS NULL
    RETURNING id
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'logout', jsonb_build_object('session', id) FROM ended
)
SELECT id FROM ended
