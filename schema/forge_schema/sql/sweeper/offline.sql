-- Marks workers offline that have not been seen for a while, except those that an admin created and
-- that never connected; none while the sweepers hold off.
WITH silent AS (
    UPDATE worker SET status = 'offline'
    WHERE status <> 'offline' AND last_seen_at < forge_now() - %(silence)s
        AND boot_id <> '00000000-0000-0000-0000-000000000000'
        AND NOT EXISTS (SELECT FROM sweeper WHERE holds_until > forge_now())
    RETURNING id
),
awake AS (
    DELETE FROM idle USING silent WHERE idle.worker_id = silent.id
),
told AS (
    INSERT INTO event (at, actor, action, worker_id)
    SELECT forge_now(), %(actor)s, 'offline', id FROM silent
)
SELECT id FROM silent
