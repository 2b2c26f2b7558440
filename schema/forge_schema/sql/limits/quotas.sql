-- The owners of a scope (null is all) with their settings, and what those with a budget have used this month.
SELECT
    o.owner, o.paused, o.max_jobs, o.max_gpus, o.guaranteed_gpus, o.weight, o.approve_gpu_hours,
    o.approve_cost, o.gpu_hours_per_month, o.cost_per_month, o.when_spent,
    spending.gpu_hours AS used_gpu_hours, spending.cost AS used_cost, spending.spent_at
FROM owner_quota AS o
LEFT JOIN spending
    ON spending.owner = o.owner AND spending.settled_at >= forge_month()
    AND num_nonnulls(o.gpu_hours_per_month, o.cost_per_month) > 0
WHERE %(scope)s::text[] IS NULL OR o.owner = ANY(%(scope)s::text[])
ORDER BY o.owner
