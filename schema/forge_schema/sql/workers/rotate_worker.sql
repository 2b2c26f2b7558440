-- Replaces a worker's token, and if there is a new public key, that too. The old one is invalid once this has committed, also for open waits
-- and streams, which are notified to check it.
WITH rotated AS (
    UPDATE worker
    SET token_hash = %(hash)s, token_expires_at = forge_now() + %(lasts)s::interval,
        public_key = coalesce(%(public_key)s, public_key)
    WHERE id = %(id)s
    RETURNING id, public_key
),
told AS (
    INSERT INTO event (at, actor, action, worker_id, detail)
    SELECT
        forge_now(), %(actor)s, 'token_rotated', id,
        jsonb_build_object('signs', public_key IS NOT NULL)
    FROM rotated
)
SELECT id, pg_notify('forge', 'asked:' || id) FROM rotated
