-- The states of jobs by id, of some owners or of all.
SELECT *
FROM job_status
WHERE job_id = ANY(%(job_ids)s::bigint[])
    AND (%(scope)s::text[] IS NULL OR owner = ANY(%(scope)s::text[]))
