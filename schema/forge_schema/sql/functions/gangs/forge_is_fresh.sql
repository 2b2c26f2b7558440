-- Whether a worker's last heartbeat is not overdue by more than half a period and five seconds. A gang
-- with a worker that died would keep all others waiting.
CREATE OR REPLACE FUNCTION forge_is_fresh(w worker) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT w.last_seen_at > forge_now() - interval '1 second' * (
        5 + 1.5 * CASE jsonb_typeof(w.condition -> 'heartbeat_s')
            WHEN 'number' THEN least((w.condition ->> 'heartbeat_s')::numeric, 3600) ELSE 30
        END
    )::float8
$$;
