-- Records that a worker disconnected, and `why` if it left by itself. Idempotent.
WITH left_now AS (
    UPDATE worker SET
        status = 'offline', last_seen_at = forge_now(),
        condition = condition || jsonb_strip_nulls(jsonb_build_object('left', %(why)s::text))
    WHERE id = %(worker_id)s AND boot_id = %(boot_id)s AND status <> 'offline'
    RETURNING id
),
awake AS (
    DELETE FROM idle USING left_now WHERE idle.worker_id = left_now.id
),
told AS (
    INSERT INTO event (at, actor, action, worker_id, detail)
    SELECT
        forge_now(), 'worker:' || id, 'disconnected', id,
        CASE WHEN %(why)s::text IS NOT NULL THEN jsonb_build_object('why', %(why)s::text) END
    FROM left_now
)
SELECT id FROM left_now
