-- Stores an owner's notification under a name. A change of one ends its pause. Its beginning stays,
-- so that no event of the last seconds is missed; its secret, so that its receiver goes on, unless a
-- new one is wanted; and the dashboard's URL, unless another is known. Says whether there was one,
-- and whether the given secret is now its own.
WITH former AS (
    SELECT FROM notification WHERE owner = %(owner)s AND name = %(name)s
),
kept AS (
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
        secret = CASE
            WHEN excluded.kind <> 'webhook' OR %(new_secret)s THEN excluded.secret
            ELSE coalesce(notification.secret, excluded.secret)
        END,
        events = excluded.events,
        query = excluded.query,
        everyone = excluded.everyone,
        server = coalesce(excluded.server, notification.server),
        failures = 0,
        paused_until = NULL,
        error = NULL
    RETURNING owner, name, kind, events, everyone, secret
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'notification_kept', to_jsonb(kept) - 'secret' FROM kept
)
SELECT
    EXISTS (SELECT FROM former) AS changed,
    coalesce(secret = %(secret)s, false) AS has_given_secret
FROM kept
