-- Whether a gang goes before all jobs that wait for a single worker, by priority, fair share and age,
-- on as many workers as it needs. Jobs that no limit holds back count, of up to 50 shapes.
CREATE OR REPLACE FUNCTION forge_goes_first(
    wanted integer, its_nice smallint, its_share double precision, gang bigint, shares jsonb
) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    WITH before AS MATERIALIZED (
        SELECT DISTINCT lane.shape_id
        FROM forge_waiting_lanes() AS waiting (lane_id)
        JOIN lane ON lane.id = waiting.lane_id AND NOT lane.paused
        JOIN shape ON shape.id = lane.shape_id AND shape.nodes = 1
        CROSS JOIN LATERAL (
            SELECT ready.nice, ready.job_id FROM ready
            WHERE ready.lane_id = lane.id
            ORDER BY ready.nice, ready.job_id
            LIMIT 1
        ) AS head
        WHERE (head.nice, coalesce((shares ->> lane.owner)::float8, 0), head.job_id)
            < (its_nice, its_share, gang)
            AND (NOT lane.limited OR forge_room(lane.id, 1) > 0)
        LIMIT 50
    )
    SELECT count(*) >= max(shape.nodes)
    FROM shape
    JOIN worker ON forge_serves(shape, worker)
        AND forge_joins(worker)
    WHERE shape.id = wanted AND NOT EXISTS (
        SELECT
        FROM before JOIN shape AS other ON other.id = before.shape_id
        WHERE forge_fits(other, worker)
    )
$$;
