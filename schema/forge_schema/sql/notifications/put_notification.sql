-- Stores an owner's notification under a name. It replaces any previous one, with a fresh start:
-- no pause, and no events from before.
WITH kept AS (
    INSERT INTO notification (
        owner, name, kind, target, secret, events, query, everyone, server, created_at
    )
    VALUES (
        %(owner)s, %(name)s, %(kind)s, %(target)s, %(secret)s, %(events)s::text[], %(query)s,
        %(everyone)s, %(server)s, forge_now()
    )
    ON CONFLICT (owner, name) DO UPDATE SET
        kind = excluded.kind,
        target = excluded.target,
        secret = excluded.secret,
        events = excluded.events,
        query = excluded.query,
        everyone = excluded.everyone,
        server = excluded.server,
        created_at = excluded.created_at,
        failures = 0,
        paused_until = NULL,
        error = NULL
    RETURNING owner, name, kind, events, everyone
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'notification_kept', to_jsonb(kept) FROM kept
)
SELECT name FROM kept
