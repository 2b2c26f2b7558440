-- Replaces a worker's token. The old one is invalid once this has committed, also for open waits
-- and streams, which are notified to check it.
WITH rotated AS (
    UPDATE worker
    SET token_hash = %(hash)s, token_expires_at = forge_now() + %(lasts)s::interval
    WHERE id = %(id)s
    RETURNING id
),
told AS (
    INSERT INTO event (at, actor, action, worker_id)
    SELECT forge_now(), %(actor)s, 'token_rotated', id FROM rotated
)
SELECT id, pg_notify('forge', 'asked:' || id) FROM rotated
