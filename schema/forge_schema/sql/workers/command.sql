-- Asks a worker to drain or to stop, or withdraws the request. Idempotent.
WITH before AS MATERIALIZED (
    SELECT id, command FROM worker WHERE id = %(worker_id)s FOR NO KEY UPDATE
),
asked AS (
    UPDATE worker SET command = %(command)s
    FROM before
    WHERE worker.id = before.id AND before.command IS DISTINCT FROM %(command)s
    RETURNING worker.id
),
told AS (
    INSERT INTO event (at, actor, action, worker_id)
    SELECT forge_now(), %(actor)s, coalesce(%(command)s::text, 'undrain'), id FROM asked
)
SELECT id, pg_notify('forge', 'asked:' || id) FROM before
