-- Every API key, newest first, without its hash; and the sessions that have not ended.
SELECT
    id, owner, role, name, public_key IS NOT NULL AS signed, created_at, expires_at, last_used_at,
    revoked_at, acts_for, team, invitation,
    everyone AND (acts_for IS NULL OR NOT forge_placed(owner)) AS everyone
FROM api_key
WHERE acts_for IS NULL OR (revoked_at IS NULL AND expires_at > forge_now())
ORDER BY created_at DESC, id
