-- The lanes of up to `most` jobs that wait in these lanes, a lane per job, as `forge_wake` takes them.
CREATE OR REPLACE FUNCTION forge_waiting(lanes integer[], most bigint) RETURNS integer[]
LANGUAGE sql STABLE AS $$
    SELECT ARRAY(
        SELECT job.lane_id
        FROM unnest(lanes) AS wanted (lane_id)
        CROSS JOIN LATERAL (
            SELECT ready.lane_id FROM ready WHERE ready.lane_id = wanted.lane_id LIMIT most
        ) AS job
        LIMIT most
    )
$$;
