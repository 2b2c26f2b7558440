-- The states of jobs by id, of one owner or of all.
SELECT *
FROM job_status
WHERE job_id = ANY(%(job_ids)s::bigint[])
    AND (%(owner)s::text IS NULL OR owner = %(owner)s)
