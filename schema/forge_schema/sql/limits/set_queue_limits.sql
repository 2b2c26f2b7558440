-- Sets how many jobs and GPUs of a queue may run at once; NULL means no limit. `lanes_follow`
-- updates its lanes in the same transaction.
WITH changed AS (
    INSERT INTO queue (name, max_jobs, max_gpus) VALUES (%(name)s, %(max_jobs)s, %(max_gpus)s)
    ON CONFLICT (name) DO UPDATE
        SET max_jobs = excluded.max_jobs, max_gpus = excluded.max_gpus
    RETURNING name, max_jobs, max_gpus
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'queue limits set', to_jsonb(changed) FROM changed
)
SELECT name FROM changed
