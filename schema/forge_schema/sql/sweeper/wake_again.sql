-- Wakes idle workers for jobs that are still ready after `patience`, up to 100 in a lane and those of
-- 100 lanes: whoever was woken for them did not hear it, or did not take them. Gangs are left to
-- `draft`.
-- If no worker is idle, or no job has waited that long, it locks and writes nothing.
-- Locks: idle, skipping locked.
WITH late AS (
    SELECT lane.id, lane.limited
    FROM forge_waiting_lanes() AS waiting (lane_id)
    JOIN lane ON lane.id = waiting.lane_id AND NOT lane.paused
    JOIN shape ON shape.id = lane.shape_id AND shape.nodes = 1
    CROSS JOIN LATERAL (
        SELECT ready_at FROM ready
        WHERE ready.lane_id = lane.id
        ORDER BY nice, job_id
        LIMIT 1
    ) AS head
    WHERE EXISTS (SELECT FROM idle) AND head.ready_at < forge_now() - %(patience)s::interval
    -- Jobs that no idle worker can run must not be all that it looks at.
    ORDER BY random()
    LIMIT 100
),
jobs AS (
    SELECT job.lane_id
    FROM late
    CROSS JOIN LATERAL (
        SELECT ready.lane_id FROM ready
        WHERE ready.lane_id = late.id AND ready.ready_at < forge_now() - %(patience)s::interval
        LIMIT CASE WHEN late.limited THEN forge_room(late.id, 100) ELSE 100 END
    ) AS job
)
SELECT forge_wake(ARRAY(SELECT lane_id FROM jobs), 'again')
