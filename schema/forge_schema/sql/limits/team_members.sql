-- The owners of a team, and after them those who only see it by a key: their roles by valid keys and
-- by single sign-on, and of owners whether that put them here, their jobs of now, their limits, and
-- what they used this month, if that is counted.
WITH valid AS MATERIALIZED (
    SELECT owner, role, team FROM api_key
    WHERE acts_for IS NULL AND revoked_at IS NULL AND NOT invitation
        AND (expires_at IS NULL OR expires_at > forge_now())
    UNION ALL
    SELECT owner, role, NULL FROM standing
    WHERE (ended_at IS NULL OR ended_at < at) AND at > forge_now() - interval '30 days'
),
people AS (
    SELECT owner, true AS is_member FROM owner_quota WHERE team = %(name)s
    UNION ALL
    SELECT DISTINCT valid.owner, false FROM valid
    WHERE valid.team = %(name)s
        AND NOT EXISTS (
            SELECT FROM owner_quota AS o WHERE o.owner = valid.owner AND o.team = %(name)s
        )
)
SELECT
    people.owner, people.is_member, coalesce(o.by_issuer, false) AS by_issuer,
    ARRAY(SELECT DISTINCT role FROM valid WHERE valid.owner = people.owner ORDER BY role) AS roles,
    waiting.jobs AS waiting, running.jobs AS running, running.gpus,
    o.max_jobs, o.max_gpus, o.gpu_hours_per_month, o.cost_per_month,
    spending.gpu_hours AS used_gpu_hours, spending.cost AS used_cost
FROM people
LEFT JOIN owner_quota AS o ON people.is_member AND o.owner = people.owner
LEFT JOIN spending ON spending.owner = o.owner AND spending.settled_at >= forge_month()
CROSS JOIN LATERAL (
    SELECT count(*)::integer AS jobs
    FROM lane JOIN ready ON ready.lane_id = lane.id
    WHERE lane.owner = o.owner
) AS waiting
CROSS JOIN LATERAL (
    SELECT
        (count(*) FILTER (WHERE lease.rank = 0))::integer AS jobs,
        coalesce(sum(shape.gpus), 0)::integer AS gpus
    FROM lane
    JOIN lease ON lease.lane_id = lane.id
    JOIN shape ON shape.id = lane.shape_id
    WHERE lane.owner = o.owner
) AS running
ORDER BY people.is_member DESC, people.owner
