-- The first of some jobs that does not exist, or that is another owner's.
SELECT wanted.id
FROM unnest(%(job_ids)s::bigint[]) AS wanted (id)
WHERE NOT EXISTS (
    SELECT FROM job
    WHERE job.id = wanted.id AND (%(any_owner)s OR job.owner = %(owner)s)
)
ORDER BY wanted.id
LIMIT 1
