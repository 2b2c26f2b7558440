-- The experiments of some owners or of all, with their newest job, the newest first. Each is found by
-- one look into the index, however many jobs it has.
WITH RECURSIVE named AS (
    SELECT owner_quota.owner, next.experiment
    FROM owner_quota
    CROSS JOIN LATERAL (
        SELECT job.experiment FROM job
        WHERE job.owner = owner_quota.owner AND job.experiment IS NOT NULL
        ORDER BY job.experiment LIMIT 1
    ) AS next
    WHERE %(scope)s::text[] IS NULL OR owner_quota.owner = ANY(%(scope)s::text[])
    UNION ALL
    SELECT named.owner, next.experiment
    FROM named
    CROSS JOIN LATERAL (
        SELECT job.experiment FROM job
        WHERE job.owner = named.owner AND job.experiment > named.experiment
        ORDER BY job.experiment LIMIT 1
    ) AS next
)
SELECT named.owner, named.experiment, newest.job_id, newest.submitted_at
FROM (SELECT * FROM named LIMIT %(look)s) AS named
CROSS JOIN LATERAL (
    SELECT job.id AS job_id, job.submitted_at FROM job
    WHERE job.owner = named.owner AND job.experiment = named.experiment
    ORDER BY job.id DESC LIMIT 1
) AS newest
ORDER BY newest.job_id DESC
LIMIT %(count)s
