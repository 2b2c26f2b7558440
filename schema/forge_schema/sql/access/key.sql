-- A key or a session that is neither revoked nor expired, nor is the key that the session acts for,
-- whose hash and whose view of other owners it then has; and the current time. A person's session
-- sees the team that the person is in now, and everyone only if no admin chose that team.
SELECT
    found.id, found.owner, found.role, found.public_key, found.acts_for, found.expires_at,
    coalesce(key.hash, found.hash) AS hash, forge_now() AS now,
    seen.team,
    forge_others(
        found.owner, seen.team,
        coalesce(
            key.everyone,
            found.everyone AND (found.acts_for IS NULL OR NOT forge_placed(found.owner))
        )
    ) AS others
FROM api_key AS found
LEFT JOIN api_key AS key
    ON starts_with(found.acts_for, 'key:') AND key.id = substr(found.acts_for, 5)
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN key.id IS NOT NULL THEN key.team
        WHEN found.acts_for IS NOT NULL THEN forge_team(found.owner)
        ELSE found.team
    END AS team
) AS seen
WHERE found.id = %(id)s
    AND found.revoked_at IS NULL AND (found.expires_at IS NULL OR found.expires_at > forge_now())
    AND key.revoked_at IS NULL AND (key.expires_at IS NULL OR key.expires_at > forge_now())
    -- A key that was removed.
    AND (key.id IS NOT NULL OR found.acts_for IS NULL OR NOT starts_with(found.acts_for, 'key:'))
