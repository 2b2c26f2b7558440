-- A session that has not ended, with the hash of the key that it acts for, and the current time.
SELECT
    session.id, session.owner, session.role, session.acts_for,
    coalesce(key.hash, session.hash) AS hash, forge_now() AS now
FROM api_key AS session
LEFT JOIN api_key AS key
    ON starts_with(session.acts_for, 'key:') AND key.id = substr(session.acts_for, 5)
WHERE session.id = %(id)s AND session.acts_for IS NOT NULL
    AND session.revoked_at IS NULL AND session.expires_at > forge_now()
    AND key.revoked_at IS NULL AND (key.expires_at IS NULL OR key.expires_at > forge_now())
    -- A key that was removed.
    AND (key.id IS NOT NULL OR NOT starts_with(session.acts_for, 'key:'))
