-- An API key that is neither revoked nor expired, and the current time.
SELECT id, owner, role, public_key, hash, forge_now() AS now
FROM api_key
WHERE id = %(id)s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > forge_now())
