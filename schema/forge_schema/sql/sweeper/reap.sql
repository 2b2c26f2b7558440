-- Removes ephemeral workers long offline and workers that never connected: one created by an admin
-- when its token has expired, a pod's when it would be long offline, since it may enrol again, any
-- other soon. Never the holder of a lease, and none while the sweepers hold off.
WITH gone AS (
    DELETE FROM worker
    WHERE (
            (kind = 'ephemeral' AND status = 'offline'
                AND last_seen_at < forge_now() - %(ephemeral_after)s)
            OR (connected_at IS NULL AND CASE
                WHEN token_hash IS NULL THEN registered_at < forge_now() - %(unconnected_after)s
                WHEN pinned_labels ? 'kubernetes.io/pod-uid'
                    THEN registered_at < forge_now() - %(ephemeral_after)s
                ELSE token_expires_at <= forge_now()
            END)
        )
        AND NOT EXISTS (SELECT FROM lease WHERE lease.worker_id = worker.id)
        AND NOT EXISTS (SELECT FROM sweeper WHERE holds_until > forge_now())
    RETURNING id, name
),
remembered AS (
    INSERT INTO former_worker (id, name) SELECT id, name FROM gone
    ON CONFLICT DO NOTHING
),
told AS (
    INSERT INTO event (at, actor, action, worker_id, detail)
    SELECT forge_now(), %(actor)s, 'reaped', id, jsonb_build_object('name', name) FROM gone
)
SELECT id FROM gone
