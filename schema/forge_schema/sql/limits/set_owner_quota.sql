-- Sets how many jobs and GPUs of an owner may run at once, the owner's weight, and what the owner
-- may spend without an approval: the latter only if it is `given`. `lanes_follow` updates the
-- owner's lanes in the same transaction.
WITH changed AS (
    INSERT INTO owner_quota (owner, max_jobs, max_gpus, weight, approve_gpu_hours, approve_cost)
    VALUES (
        %(name)s, %(max_jobs)s, %(max_gpus)s, %(weight)s, %(approve_gpu_hours)s, %(approve_cost)s
    )
    ON CONFLICT (owner) DO UPDATE
        SET
            max_jobs = excluded.max_jobs, max_gpus = excluded.max_gpus, weight = excluded.weight,
            approve_gpu_hours = CASE
                WHEN 'approve_gpu_hours' = ANY(%(given)s::text[]) THEN excluded.approve_gpu_hours
                ELSE owner_quota.approve_gpu_hours
            END,
            approve_cost = CASE
                WHEN 'approve_cost' = ANY(%(given)s::text[]) THEN excluded.approve_cost
                ELSE owner_quota.approve_cost
            END
    RETURNING owner, max_jobs, max_gpus, weight, approve_gpu_hours, approve_cost
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'owner quota set', to_jsonb(changed) FROM changed
)
SELECT owner FROM changed
