-- Sets how many jobs and GPUs of an owner may run at once, and the owner's weight. `lanes_follow`
-- updates the owner's lanes in the same transaction.
WITH changed AS (
    INSERT INTO owner_quota (owner, max_jobs, max_gpus, weight)
    VALUES (%(name)s, %(max_jobs)s, %(max_gpus)s, %(weight)s)
    ON CONFLICT (owner) DO UPDATE
        SET max_jobs = excluded.max_jobs, max_gpus = excluded.max_gpus, weight = excluded.weight
    RETURNING owner, max_jobs, max_gpus, weight
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'owner quota set', to_jsonb(changed) FROM changed
)
SELECT owner FROM changed
