-- Recently succeeded jobs: their lanes and names, and how long each was held. At most `count` are
-- read, in the order of the table.
SELECT
    recent.lane_id, job.owner, job.name,
    extract(EPOCH FROM recent.finished_at - recent.claimed_at)::float8 AS held_s,
    extract(EPOCH FROM recent.finished_at - %(since)s::timestamptz)::float8 AS after_s
FROM (
    SELECT job_id, lane_id, claimed_at, finished_at FROM attempt
    WHERE finished_at >= %(since)s AND reason = 'succeeded' AND rank = 0
    LIMIT %(count)s
) AS recent
JOIN job ON job.id = recent.job_id
