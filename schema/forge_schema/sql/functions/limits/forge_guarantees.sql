-- The GPUs that are guaranteed to queues, owners and teams, as a lane with a waiting job sees them: how
-- many `runs`, but for jobs that leave; whether the guarantee `is_its`, how many GPUs its job `wants`,
-- and whether that `fits` into what is not used, by running jobs and those that room is kept for.
CREATE OR REPLACE FUNCTION forge_guarantees(of_lane integer)
RETURNS TABLE (
    kind text, name text, gpus bigint, runs bigint, is_its boolean, wants bigint, fits boolean
)
LANGUAGE sql STABLE AS $$
    WITH held AS MATERIALIZED (
        SELECT each.lane_id, sum(each.used) AS used, sum(each.runs) AS runs
        FROM (
            SELECT lease.lane_id, 1 AS used, (lease.asked IS NULL)::integer AS runs FROM lease
            UNION ALL
            SELECT forming.lane_id, shape.nodes, 0
            FROM forming
            JOIN lane ON lane.id = forming.lane_id
            JOIN shape ON shape.id = lane.shape_id
            WHERE forming.rests_until IS NULL AND lane.id <> of_lane
                AND NOT EXISTS (SELECT FROM lease WHERE lease.job_id = forming.job_id)
        ) AS each
        GROUP BY each.lane_id
    ),
    due AS (
        SELECT 'queue' AS kind, name, guaranteed_gpus AS gpus FROM queue
        UNION ALL
        SELECT 'owner', owner, guaranteed_gpus FROM owner_quota
        UNION ALL
        SELECT 'team', name, guaranteed_gpus FROM team
    )
    SELECT
        due.kind, due.name, due.gpus, count.runs, its.it, its.wants,
        its.it AND its.wants > 0 AND count.used + its.wants <= due.gpus
    FROM due
    CROSS JOIN LATERAL (
        SELECT
            coalesce(sum(held.used * shape.gpus), 0)::bigint AS used,
            coalesce(sum(held.runs * shape.gpus), 0)::bigint AS runs
        FROM held
        JOIN lane ON lane.id = held.lane_id AND forge_counts_for(lane, due.kind, due.name)
        JOIN shape ON shape.id = lane.shape_id
    ) AS count
    LEFT JOIN LATERAL (
        SELECT
            forge_counts_for(lane, due.kind, due.name) AS it,
            (shape.gpus * shape.nodes)::bigint AS wants
        FROM lane JOIN shape ON shape.id = lane.shape_id
        WHERE lane.id = of_lane
    ) AS its ON true
    WHERE due.gpus IS NOT NULL
$$;
