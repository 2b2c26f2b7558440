-- A valid API key with its hash, which the caller compares. Its use is recorded at most once a
-- minute, so that a busy key does not become a hot row.
WITH used AS (
    UPDATE api_key SET last_used_at = forge_now()
    WHERE id = %(id)s AND hash = %(hash)s AND revoked_at IS NULL
        AND (last_used_at IS NULL OR last_used_at < forge_now() - interval '1 minute')
)
SELECT
    id, owner, role, public_key, hash, team, forge_others(owner, team, everyone) AS others
FROM api_key
WHERE id = %(id)s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > forge_now())
