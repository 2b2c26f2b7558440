-- Exchanges a token to join with for the worker's own, which does not expire. A repeated call finds
-- its own row by id and hash.
WITH joined AS (
    UPDATE worker
    SET token_hash = %(hash)s, token_expires_at = NULL
    WHERE id = %(id)s AND token_hash = %(join_hash)s AND token_expires_at > forge_now()
    RETURNING id, name
),
told AS (
    INSERT INTO event (at, actor, action, worker_id, detail)
    SELECT forge_now(), 'worker:' || id, 'joined', id, jsonb_build_object('name', name)
    FROM joined
)
SELECT id, name FROM joined
UNION
SELECT id, name FROM worker WHERE id = %(id)s AND token_hash = %(hash)s
