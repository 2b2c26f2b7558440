-- Sets those of a queue's pause and limits that are `given`; the others stay. `lanes_follow` updates
-- its lanes in the same transaction.
WITH changed AS (
    INSERT INTO queue (name, paused, max_jobs, max_gpus)
    VALUES (%(queue)s, %(paused)s, %(max_jobs)s, %(max_gpus)s)
    ON CONFLICT (name) DO UPDATE
        SET
            paused = CASE
                WHEN 'paused' = ANY(%(given)s::text[]) THEN excluded.paused ELSE queue.paused
            END,
            max_jobs = CASE
                WHEN 'max_jobs' = ANY(%(given)s::text[]) THEN excluded.max_jobs
                ELSE queue.max_jobs
            END,
            max_gpus = CASE
                WHEN 'max_gpus' = ANY(%(given)s::text[]) THEN excluded.max_gpus
                ELSE queue.max_gpus
            END
    RETURNING name, paused, max_jobs, max_gpus
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'queue set', to_jsonb(changed) FROM changed
)
SELECT name FROM changed
