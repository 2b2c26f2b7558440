-- The slots that there should be: for each limit one for each job, or GPU, that it allows, and more
-- if more of them run, as may be after the limit was lowered.
CREATE OR REPLACE FUNCTION forge_due_slots()
RETURNS TABLE (kind text, name text, n integer, job_id bigint)
LANGUAGE sql STABLE AS $$
    WITH bound AS MATERIALIZED (
        SELECT own.* FROM queue CROSS JOIN LATERAL (
            VALUES ('queue_jobs', queue.name, max_jobs), ('queue_gpus', queue.name, max_gpus)
        ) AS own (kind, name, most)
        WHERE most IS NOT NULL
        UNION ALL
        SELECT own.* FROM owner_quota CROSS JOIN LATERAL (
            VALUES ('owner_jobs', owner, max_jobs), ('owner_gpus', owner, max_gpus)
        ) AS own (kind, name, most)
        WHERE most IS NOT NULL
        UNION ALL
        SELECT own.* FROM team CROSS JOIN LATERAL (
            VALUES ('team_jobs', team.name, max_jobs), ('team_gpus', team.name, max_gpus)
        ) AS own (kind, name, most)
        WHERE most IS NOT NULL
    ),
    held AS MATERIALIZED (
        SELECT
            of_lane.kind, of_lane.name, lease.job_id,
            row_number() OVER (PARTITION BY of_lane.kind, of_lane.name ORDER BY lease.job_id)::integer AS n
        FROM lease
        JOIN lane ON lane.id = lease.lane_id AND lane.limited
        CROSS JOIN LATERAL forge_limits_of(lease.lane_id, lease.nodes) AS of_lane
        CROSS JOIN LATERAL generate_series(1, of_lane.slots)
        -- Rank 0 holds those of all machines of a gang.
        WHERE lease.rank = 0
    ),
    free AS (
        SELECT bound.kind, bound.name, number AS n
        FROM bound
        LEFT JOIN (
            SELECT held.kind, held.name, count(*)::integer AS slots FROM held GROUP BY 1, 2
        ) AS used USING (kind, name)
        CROSS JOIN LATERAL generate_series(coalesce(used.slots, 0) + 1, least(bound.most, 100000)) AS number
    )
    SELECT held.kind, held.name, held.n, held.job_id FROM held
    UNION ALL
    SELECT free.kind, free.name, free.n, NULL FROM free
$$;
