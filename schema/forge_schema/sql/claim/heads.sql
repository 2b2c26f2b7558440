-- The first job of each given lane; paused and empty lanes are left out.
SELECT lane.id AS lane_id, head.nice, head.job_id
FROM lane
CROSS JOIN LATERAL (
    SELECT nice, job_id FROM ready WHERE lane_id = lane.id ORDER BY nice, job_id LIMIT 1
) AS head
WHERE lane.id = ANY(%(lanes)s::integer[]) AND NOT lane.paused
