-- The job that has been ready longest, of some owners or of all; a paused one only if no other waits.
SELECT
    oldest.job_id, job.name, job.owner, oldest.queue, oldest.paused,
    extract(EPOCH FROM forge_now() - oldest.ready_at)::double precision AS waited_s
FROM (
    SELECT ready.job_id, ready.ready_at, lane.queue, lane.paused
    FROM ready
    JOIN lane ON lane.id = ready.lane_id
    WHERE %(scope)s::text[] IS NULL OR lane.owner = ANY(%(scope)s::text[])
    ORDER BY lane.paused, ready.ready_at, ready.job_id
    LIMIT 1
) AS oldest
JOIN job ON job.id = oldest.job_id
