-- Replaces a worker's token; the old one is invalid as soon as this has committed, also for what
-- waits or streams: it is told to look.
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
