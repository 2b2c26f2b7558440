-- The first job of each given lane, and how long ago a worker first passed it by; paused and empty
-- lanes are left out.
SELECT
    lane.id AS lane_id, head.nice, head.job_id,
    extract(EPOCH FROM forge_now() - head.passed_at)::float8 AS passed_s
FROM lane
CROSS JOIN LATERAL (
    SELECT nice, job_id, passed_at FROM ready
    WHERE lane_id = lane.id
    ORDER BY nice, job_id
    LIMIT 1
) AS head
WHERE lane.id = ANY(%(lanes)s::integer[]) AND NOT lane.paused
