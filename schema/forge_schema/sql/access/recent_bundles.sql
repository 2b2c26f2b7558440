-- The bundles of an owner's newest jobs, each with the newest job that uses it.
SELECT bundle_digest, max(id) AS job_id, (array_agg(name ORDER BY id DESC))[1] AS name
FROM (
    SELECT newest.id, newest.name, newest.bundle_digest
    FROM lane CROSS JOIN LATERAL (
        SELECT job.id, job.name, job.bundle_digest
        FROM job WHERE job.lane_id = lane.id
        ORDER BY job.id DESC LIMIT 50
    ) AS newest
    WHERE lane.owner = %(owner)s
    ORDER BY newest.id DESC LIMIT 200
) AS recent
WHERE bundle_digest IS NOT NULL
GROUP BY bundle_digest
ORDER BY max(id) DESC
LIMIT %(count)s
