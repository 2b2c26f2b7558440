-- Stores an owner's schedule under a name. It replaces any previous one, and is not paused; a time
-- that is due and not yet handled stays due, unless the times have changed.
WITH kept AS (
    INSERT INTO schedule AS s (owner, name, actor, cron, timezone, spec, overlap, next_at)
    VALUES (
        %(owner)s, %(name)s, %(actor)s, %(cron)s, %(timezone)s, %(spec)s, %(overlap)s, %(next_at)s
    )
    ON CONFLICT (owner, name) DO UPDATE SET
        actor = excluded.actor,
        cron = excluded.cron,
        timezone = excluded.timezone,
        spec = excluded.spec,
        overlap = excluded.overlap,
        paused = false,
        error = NULL,
        next_at = CASE
            WHEN (s.cron, s.timezone) = (excluded.cron, excluded.timezone) AND NOT s.paused
                THEN s.next_at
            ELSE excluded.next_at
        END
    RETURNING owner, name
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT
        forge_now(), %(actor)s, 'schedule_kept', jsonb_build_object('owner', owner, 'name', name)
    FROM kept
)
SELECT name FROM kept
