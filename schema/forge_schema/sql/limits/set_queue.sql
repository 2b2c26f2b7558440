-- Sets a queue's pause and limits. `lanes_follow` updates its lanes in the same transaction.
WITH changed AS (
    INSERT INTO queue (name, paused, max_jobs, max_gpus)
    VALUES (%(queue)s, %(paused)s, %(max_jobs)s, %(max_gpus)s)
    ON CONFLICT (name) DO UPDATE
        SET paused = excluded.paused, max_jobs = excluded.max_jobs, max_gpus = excluded.max_gpus
    RETURNING name, paused, max_jobs, max_gpus
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'queue set', to_jsonb(changed) FROM changed
)
SELECT name FROM changed
