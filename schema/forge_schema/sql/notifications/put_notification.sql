-- Stores an owner's notification under a name. A change of one ends its pause, and whoever makes it
-- is its maker from then on. What is null stays as
-- it was: also its secret, so that its receiver goes on, unless a new one is wanted, and the
-- dashboard's URL. So does its beginning, so that no event of the last seconds is missed. No row if
-- there is none to change and no target for a new one. Says whether the given secret is now its own.
WITH kept AS (
    INSERT INTO notification (
        owner, name, kind, target, secret, events, query, everyone, server, created_at, actor,
        team
    )
    SELECT
        %(owner)s, %(name)s, wanted.kind, wanted.target,
        CASE WHEN wanted.kind = 'webhook' THEN %(secret)s END,
        coalesce(%(events)s::text[], %(usual)s::text[]), coalesce(%(query)s, ''),
        coalesce(%(everyone)s, false), %(server)s, forge_now(),
        %(actor)s, nullif(%(team)s, '')
    FROM (
        -- A change conflicts with the row below, and has to reach that.
        SELECT
            coalesce(%(kind)s, max(kind)) AS kind, coalesce(%(target)s, max(target)) AS target
        FROM notification WHERE owner = %(owner)s AND name = %(name)s
    ) AS wanted
    WHERE wanted.kind IS NOT NULL
    ON CONFLICT (owner, name) DO UPDATE SET
        kind = coalesce(%(kind)s, notification.kind),
        target = coalesce(%(target)s, notification.target),
        secret = CASE
            WHEN coalesce(%(kind)s, notification.kind) <> 'webhook' THEN NULL
            WHEN %(new_secret)s THEN %(secret)s
            ELSE coalesce(notification.secret, %(secret)s)
        END,
        events = coalesce(%(events)s::text[], notification.events),
        query = coalesce(%(query)s, notification.query),
        everyone = coalesce(%(everyone)s, notification.everyone),
        team = nullif(coalesce(%(team)s, notification.team), ''),
        server = coalesce(excluded.server, notification.server),
        actor = excluded.actor,
        withheld = NULL,
        failures = 0,
        paused_until = NULL,
        error = NULL
    RETURNING owner, name, kind, events, everyone, team, secret
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'notification_kept', to_jsonb(kept) - 'secret' FROM kept
)
SELECT coalesce(secret = %(secret)s, false) AS has_given_secret FROM kept
