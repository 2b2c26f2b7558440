-- The API key of a session that has not been ended, and the current time.
SELECT id, owner, role, public_key, hash, forge_now() AS now
FROM api_key
WHERE id = %(id)s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > forge_now())
    AND NOT EXISTS (
        SELECT FROM request_nonce WHERE key_id = %(id)s AND nonce = %(session)s
    )
