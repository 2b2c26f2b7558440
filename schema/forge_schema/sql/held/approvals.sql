-- The jobs that wait for approval, of one owner or sweep or of all, the oldest first.
SELECT
    held.job_id, job.name, job.owner, lane.queue, job.sweep, job.submitted_at, held.approval
FROM held
JOIN job ON job.id = held.job_id
JOIN lane ON lane.id = job.lane_id
WHERE held.approval IS NOT NULL AND held.job_id > %(after)s
    AND (%(owner)s::text IS NULL OR job.owner = %(owner)s)
    AND (%(sweep)s::text IS NULL OR job.sweep = %(sweep)s)
ORDER BY held.job_id
LIMIT %(count)s
