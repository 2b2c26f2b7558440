-- Pauses or resumes a queue. `lanes_follow` updates its lanes in the same transaction.
WITH paused AS (
    INSERT INTO queue (name, paused) VALUES (%(queue)s, %(paused)s)
    ON CONFLICT (name) DO UPDATE SET paused = excluded.paused
    RETURNING name
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT
        forge_now(), %(actor)s, CASE WHEN %(paused)s THEN 'paused' ELSE 'resumed' END,
        jsonb_build_object('queue', name)
    FROM paused
)
SELECT name FROM paused
