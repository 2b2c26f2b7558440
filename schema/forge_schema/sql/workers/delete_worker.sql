-- Deletes a worker that is offline or never connected and that holds no lease. Its streams end.
WITH there AS MATERIALIZED (
    SELECT id, name, status, connected_at, last_seen_at FROM worker WHERE id = %(id)s FOR UPDATE
),
deleted AS (
    DELETE FROM worker USING there
    WHERE worker.id = there.id
        AND (there.status = 'offline' OR there.connected_at IS NULL)
        AND NOT EXISTS (SELECT FROM lease WHERE lease.worker_id = there.id)
    RETURNING worker.id, worker.name
),
remembered AS (
    INSERT INTO former_worker (id, name) SELECT id, name FROM deleted
    ON CONFLICT DO NOTHING
),
told AS (
    INSERT INTO event (at, actor, action, worker_id, detail)
    SELECT forge_now(), %(actor)s, 'worker_deleted', id, jsonb_build_object('name', name)
    FROM deleted
)
SELECT
    there.name, forge_status(there.status, held.leases) AS status,
    extract(EPOCH FROM forge_now() - there.last_seen_at)::float8 AS silent_s,
    deleted.id IS NOT NULL AS deleted, pg_notify('forge', 'asked:' || there.id)
FROM there LEFT JOIN deleted USING (id)
CROSS JOIN LATERAL (SELECT count(*) AS leases FROM lease WHERE lease.worker_id = there.id) AS held
