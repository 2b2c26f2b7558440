-- Sets how many jobs and GPUs of an owner may run at once, the owner's weight, what the owner may
-- spend without an approval, and the owner's budget: the latter two only if `given`. `lanes_follow`
-- updates the owner's lanes in the same transaction.
WITH changed AS (
    INSERT INTO owner_quota (
        owner, max_jobs, max_gpus, weight, approve_gpu_hours, approve_cost, gpu_hours_per_month,
        cost_per_month, when_spent
    )
    VALUES (
        %(name)s, %(max_jobs)s, %(max_gpus)s, %(weight)s, %(approve_gpu_hours)s, %(approve_cost)s,
        %(gpu_hours_per_month)s, %(cost_per_month)s, %(when_spent)s
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
            END,
            gpu_hours_per_month = CASE
                WHEN 'gpu_hours_per_month' = ANY(%(given)s::text[])
                    THEN excluded.gpu_hours_per_month
                ELSE owner_quota.gpu_hours_per_month
            END,
            cost_per_month = CASE
                WHEN 'cost_per_month' = ANY(%(given)s::text[]) THEN excluded.cost_per_month
                ELSE owner_quota.cost_per_month
            END,
            when_spent = CASE
                WHEN 'when_spent' = ANY(%(given)s::text[]) THEN excluded.when_spent
                ELSE owner_quota.when_spent
            END
    RETURNING
        owner, max_jobs, max_gpus, weight, approve_gpu_hours, approve_cost, gpu_hours_per_month,
        cost_per_month, when_spent
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'owner quota set', to_jsonb(changed) FROM changed
)
SELECT owner FROM changed
