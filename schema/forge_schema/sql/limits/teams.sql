-- Every team with its owners and limits, by name, or the one of a name; and what those with a budget
-- have used this month.
SELECT
    t.name, t.max_jobs, t.max_gpus, t.guaranteed_gpus, t.gpu_hours_per_month, t.cost_per_month,
    t.when_spent, t.spent_at, its.owners,
    CASE WHEN t.gpu_hours_per_month IS NOT NULL THEN its.gpu_hours END AS used_gpu_hours,
    CASE WHEN t.cost_per_month IS NOT NULL THEN its.cost END AS used_cost
FROM team AS t
CROSS JOIN LATERAL (
    SELECT
        coalesce(array_agg(o.owner ORDER BY o.owner), '{}') AS owners,
        coalesce(sum(spending.gpu_hours), 0) AS gpu_hours, coalesce(sum(spending.cost), 0) AS cost
    FROM owner_quota AS o
    LEFT JOIN spending ON spending.owner = o.owner AND spending.settled_at >= forge_month()
    WHERE o.team = t.name
) AS its
WHERE %(name)s::text IS NULL OR t.name = %(name)s
ORDER BY t.name
