-- The lanes that have jobs, found by jumping from one to the next.
CREATE OR REPLACE FUNCTION forge_waiting_lanes() RETURNS SETOF integer
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE waiting AS (
        SELECT (SELECT ready.lane_id FROM ready ORDER BY ready.lane_id LIMIT 1) AS lane_id
        UNION ALL
        SELECT (
            SELECT ready.lane_id FROM ready
            WHERE ready.lane_id > waiting.lane_id
            ORDER BY ready.lane_id LIMIT 1
        )
        FROM waiting WHERE waiting.lane_id IS NOT NULL
    )
    SELECT lane_id FROM waiting WHERE lane_id IS NOT NULL
$$;
