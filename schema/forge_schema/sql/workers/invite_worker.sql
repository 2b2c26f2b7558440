-- Gives a worker that never connected a new token to join with. Returns no row if it has connected.
WITH invited AS (
    UPDATE worker
    SET kind = %(kind)s, labels = %(labels)s, pinned_labels = %(labels)s, token_hash = %(hash)s,
        token_expires_at = forge_now() + %(lasts)s::interval, public_key = NULL
    WHERE id = %(id)s AND connected_at IS NULL
        AND boot_id = '00000000-0000-0000-0000-000000000000'
    RETURNING id
),
told AS (
    INSERT INTO event (at, actor, action, worker_id, detail)
    SELECT forge_now(), %(actor)s, 'token_rotated', id, jsonb_build_object('signs', false)
    FROM invited
)
SELECT id FROM invited
