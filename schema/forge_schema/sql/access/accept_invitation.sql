-- Makes an invitation a key that stays, with another secret. The old one is invalid once this has
-- committed. A key that is no invitation is left as it is, with its expiry.
WITH accepted AS (
    UPDATE api_key SET hash = %(hash)s, invitation = false, expires_at = NULL
    WHERE id = %(id)s AND invitation AND revoked_at IS NULL AND expires_at > forge_now()
    RETURNING id
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'invitation_accepted', jsonb_build_object('key', id)
    FROM accepted
)
SELECT id FROM accepted
