-- Every claim, including those of running jobs, and how long the job had been ready. A gang is
-- represented by its first rank.
CREATE VIEW claims AS
SELECT
    claimed.job_id,
    claimed.attempt,
    lane.queue,
    lane.owner,
    lane.shape_id,
    claimed.ready_at,
    claimed.claimed_at,
    (claimed.claimed_at AT TIME ZONE 'UTC')::date AS day,
    extract(EPOCH FROM claimed.claimed_at - claimed.ready_at)::double precision AS waited_s
FROM (
    SELECT job_id, attempt, lane_id, ready_at, claimed_at FROM attempt WHERE rank = 0
    UNION ALL
    SELECT job_id, attempt, lane_id, ready_at, claimed_at FROM lease WHERE rank = 0
) AS claimed
JOIN lane ON lane.id = claimed.lane_id;
