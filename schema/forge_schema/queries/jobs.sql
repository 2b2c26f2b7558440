-- The newest jobs, of an owner, in some states, before an id.
SELECT *
FROM job_status
WHERE (%(owner)s::text IS NULL OR owner = %(owner)s)
    AND (%(states)s::state[] IS NULL OR state = ANY(%(states)s::state[]))
    AND (%(before)s::bigint IS NULL OR job_id < %(before)s)
ORDER BY job_id DESC
LIMIT %(count)s
