-- Asks a worker to drain or to stop, or withdraws the request; then it is not suspected any more
-- either. Idempotent.
WITH before AS MATERIALIZED (
    SELECT id, command, suspected_for FROM worker WHERE id = %(worker_id)s FOR NO KEY UPDATE
),
asked AS (
    UPDATE worker SET
        command = %(command)s,
        suspected_for = CASE WHEN %(command)s IS NOT NULL THEN worker.suspected_for END,
        judged_at = CASE
            WHEN %(command)s IS NULL AND worker.suspected_for IS NOT NULL THEN forge_now()
            ELSE worker.judged_at
        END
    FROM before
    WHERE worker.id = before.id AND (
        before.command IS DISTINCT FROM %(command)s
        OR (%(command)s IS NULL AND before.suspected_for IS NOT NULL)
    )
    RETURNING worker.id
),
told AS (
    INSERT INTO event (at, actor, action, worker_id)
    SELECT forge_now(), %(actor)s, coalesce(%(command)s::text, 'undrain'), id FROM asked
)
SELECT id, pg_notify('forge', 'asked:' || id) FROM before
