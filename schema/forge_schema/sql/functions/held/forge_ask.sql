-- What an admin has to approve before a job may start: what it may spend, and what all jobs of its
-- request may; null if that is within what the owner may spend without asking. Amounts without
-- bound and unknown ones, as `forge_may_spend` has them, exceed every limit and are null here.
CREATE OR REPLACE FUNCTION forge_ask(
    whose text, time_limit_s integer, jobs bigint,
    gpu_hours double precision, all_gpu_hours double precision,
    cost double precision, all_cost double precision
)
RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'timeout_s', time_limit_s,
        'jobs', jobs,
        'gpu_hours', CASE WHEN gpu_hours < 'Infinity' THEN gpu_hours END,
        'all_gpu_hours', CASE WHEN all_gpu_hours < 'Infinity' THEN all_gpu_hours END,
        'cost', CASE WHEN cost < 'Infinity' THEN cost END,
        'all_cost', CASE WHEN all_cost < 'Infinity' THEN all_cost END,
        'most_gpu_hours', o.approve_gpu_hours,
        'most_cost', o.approve_cost
    )
    FROM owner_quota AS o
    WHERE o.owner = whose
        AND (
            (gpu_hours > 0 AND all_gpu_hours > o.approve_gpu_hours)
            OR (cost > 0 AND all_cost > o.approve_cost)
        )
$$;
