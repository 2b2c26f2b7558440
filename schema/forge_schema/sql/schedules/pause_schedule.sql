-- Pauses a schedule, or resumes it from its next time on; one that already is as wanted stays as it
-- is. Whoever resumes it answers for it from then on.
WITH changed AS (
    UPDATE schedule
    SET
        paused = %(paused)s,
        actor = CASE WHEN %(paused)s THEN actor ELSE %(actor)s END,
        next_at = coalesce(%(next_at)s::timestamptz, next_at)
    WHERE owner = %(owner)s AND name = %(name)s AND paused <> %(paused)s
    RETURNING owner, name, paused
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT
        forge_now(), %(actor)s,
        CASE WHEN paused THEN 'schedule_paused' ELSE 'schedule_resumed' END,
        jsonb_build_object('owner', owner, 'name', name)
    FROM changed
)
SELECT name FROM changed
