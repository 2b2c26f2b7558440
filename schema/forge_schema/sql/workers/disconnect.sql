-- Records that a worker disconnected. Idempotent.
WITH left_now AS (
    UPDATE worker SET status = 'offline', last_seen_at = forge_now()
    WHERE id = %(worker_id)s AND boot_id = %(boot_id)s AND status <> 'offline'
    RETURNING id
),
awake AS (
    DELETE FROM idle USING left_now WHERE idle.worker_id = left_now.id
),
told AS (
    INSERT INTO event (at, actor, action, worker_id)
    SELECT forge_now(), 'worker:' || id, 'disconnected', id FROM left_now
)
SELECT id FROM left_now
