-- Sets those that are `given` of: how many jobs and GPUs of an owner may run at once, the owner's
-- weight and guarantee, what the owner may spend without an approval, and the owner's budget.
-- `lanes_follow` updates the owner's lanes in the same transaction.
WITH changed AS (
    INSERT INTO owner_quota (
        owner, max_jobs, max_gpus, guaranteed_gpus, weight, approve_gpu_hours, approve_cost,
        gpu_hours_per_month, cost_per_month, when_spent
    )
    VALUES (
        %(owner)s, %(max_jobs)s, %(max_gpus)s, %(guaranteed_gpus)s, %(weight)s,
        %(approve_gpu_hours)s, %(approve_cost)s, %(gpu_hours_per_month)s, %(cost_per_month)s,
        %(when_spent)s
    )
    ON CONFLICT (owner) DO UPDATE
        SET (
            max_jobs, max_gpus, guaranteed_gpus, weight, approve_gpu_hours, approve_cost,
            gpu_hours_per_month, cost_per_month, when_spent
        ) = (
            SELECT
                max_jobs, max_gpus, guaranteed_gpus, weight, approve_gpu_hours, approve_cost,
                gpu_hours_per_month, cost_per_month, when_spent
            FROM jsonb_populate_record(owner_quota, %(given)s)
        )
    RETURNING
        owner, max_jobs, max_gpus, guaranteed_gpus, weight, approve_gpu_hours, approve_cost,
        gpu_hours_per_month, cost_per_month, when_spent
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'owner quota set', to_jsonb(changed) FROM changed
)
SELECT owner FROM changed
