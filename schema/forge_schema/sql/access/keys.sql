-- Every API key, newest first, without its hash.
SELECT
    id, owner, role, name, public_key IS NOT NULL AS signed, created_at, expires_at, last_used_at,
    revoked_at
FROM api_key
ORDER BY created_at DESC, id
