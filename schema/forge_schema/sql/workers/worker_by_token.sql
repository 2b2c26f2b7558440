-- A worker whose token has not expired, with its hash, which the caller compares.
SELECT id, name, kind, boot_id, command, token_hash, address, public_key
FROM worker
WHERE id = %(id)s AND token_hash IS NOT NULL
    AND (token_expires_at IS NULL OR token_expires_at > forge_now())
